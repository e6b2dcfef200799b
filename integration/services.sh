#!/usr/bin/env bash
# Brings what the tests with real clients and brokers need: the MariaDB shell, Java 17 and Maven (Debian
# packages), and PyMySQL (in a virtual environment beside the build). Kafka itself is brought by the tests that
# start it, with Maven. Installs packages as root on Debian; elsewhere it names what is missing.
set -euo pipefail
cd "$(dirname "$0")/.."

# install PACKAGE WHAT: as root on Debian; elsewhere says what is missing.
install() {
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
        echo "services: installing $1"
        apt-get update -qq
        DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$1" >/dev/null
    else
        echo "services: the tests need $2: install the package $1" >&2
        exit 1
    fi
}

if ! command -v mariadb >/dev/null && ! command -v mysql >/dev/null; then
    install mariadb-client "the mariadb shell"
fi
command -v java >/dev/null || install openjdk-17-jre-headless "Java 17 or newer, for Kafka's broker"
command -v mvn >/dev/null || install maven "Maven, which brings Kafka's broker"

venv="${CARGO_TARGET_DIR:-target}/python"
if ! "$venv/bin/python" -c 'import pymysql' 2>/dev/null; then
    echo "services: installing PyMySQL into $venv"
    python3 -m venv "$venv"
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check 'PyMySQL==1.1.*'
fi
echo "services: ready"
