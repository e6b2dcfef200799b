#!/usr/bin/env bash
# Brings what the tests with real clients need: the MariaDB shell (Debian package) and PyMySQL (in a virtual
# environment beside the build). Installs the package as root on Debian; elsewhere it names what is missing.
set -euo pipefail
cd "$(dirname "$0")/.."

if ! command -v mariadb >/dev/null && ! command -v mysql >/dev/null; then
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
        echo "services: installing mariadb-client"
        apt-get update -qq
        DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends mariadb-client >/dev/null
    else
        echo "services: the tests need the mariadb shell: install the package mariadb-client" >&2
        exit 1
    fi
fi

venv="${CARGO_TARGET_DIR:-target}/python"
if ! "$venv/bin/python" -c 'import pymysql' 2>/dev/null; then
    echo "services: installing PyMySQL into $venv"
    python3 -m venv "$venv"
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check 'PyMySQL==1.1.*'
fi
echo "services: ready"
