#!/usr/bin/env bash
# Runs a bank and flights over a cluster, kills a process of each kind, and checks every answer.
#
#   test.sh               the containers of docker-compose.yml (needs docker with compose, and a MySQL client)
#   test.sh --endpoints   processes of this machine: the project's test server in place of PD and TiKV, and
#                         two of `tidemill server`; killed with SIGKILL by their own ids
#
# After each kill, while transfers and flights go on: the sum of all accounts is what it was, in every read
# mode; VERIFY finds no difference in any view; each view is its query over the tables at one timestamp; and
# no acknowledged transfer is missing. The last line is the verdict, which names what was skipped.
#
# TIDB=host:port  a TiDB of the cluster: tables are made and written through it, and what can be read from
#                 it is. Compose has one at 127.0.0.1:4000; TIDB= leaves it out.
# PD=host:port    with --endpoints: a cluster that is there already, in place of the test server
# TIDEMILL, TIKV_SERVER   the binaries, those of target/debug unless given
# KEEP=1          leaves what was started or written behind
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
built=${CARGO_TARGET_DIR:-$root/target}/debug

mode=compose
case ${1:-} in
    '') ;;
    --endpoints) mode=endpoints ;;
    *) sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p}' "$0" >&2; exit 2 ;;
esac

readonly ACCOUNTS=40 BALANCE=2500 TOTAL=100000.00 FLIGHTS=2546
# The longest that anything may take to be as it should be, in seconds.
readonly PATIENCE=60

scratch=$(mktemp -d)
step='starting'
checks=0
skipped=()
declare -A pids=() ports=()
writer=

say() { printf '%s\n' "$*"; }
die() { say "FAILED: $*" >&2; exit 1; }
begin() { step=$*; say "== $step"; }
skip() { skipped+=("$*"); say "-- skipped: $*"; }

client=
for name in mariadb mysql; do
    if command -v "$name" >/dev/null; then client=$name; break; fi
done
[ -n "$client" ] || die 'there is no MySQL client: integration/services.sh installs one'

# sql host:port statements: the rows, columns between tabs.
sql() {
    timeout "$PATIENCE" "$client" --no-defaults --protocol=tcp --host="${1%:*}" --port="${1##*:}" --user=root \
        --connect-timeout=5 --batch --skip-column-names --skip-reconnect --execute="$2"
}

# eventually what command…: waits until the command succeeds.
eventually() {
    local what=$1 end=$((SECONDS + PATIENCE))
    shift
    until "$@" >/dev/null 2>&1; do
        [ "$SECONDS" -lt "$end" ] || die "$what: not within $PATIENCE s"
        sleep 0.2
    done
}

# equal what got expected
equal() {
    checks=$((checks + 1))
    [ "$2" = "$3" ] || die "$1: got '$2', expected '$3'"
}

# ---- services: how each of them is started and killed -------------------------------------------------

compose() { docker compose --project-name tidemill-test --file "$here/docker-compose.yml" "$@"; }

# Counts up from a port to the first of so many free ones, below those that kernels give to connections.
free_ports() {
    local first=$((10000 + $$ % 9000)) offset
    for ((; first < 32000; first++)); do
        for ((offset = 0; offset < $1; offset++)); do
            if (exec 3<>"/dev/tcp/127.0.0.1/$((first + offset))") 2>/dev/null; then continue 2; fi
        done
        echo "$first"
        return
    done
    die 'no ports are free'
}

start_endpoint() {
    local log=$scratch/$1.log
    case $1 in
        cluster)
            : >"$scratch/cluster.json"
            "${TIKV_SERVER:-$built/tikv-server}" --stores 3 --regions 8 --data-dir "$scratch/data" \
                --resolved-ms 200 --pd-port "${ports[pd]}" --store-port "${ports[stores]}" \
                --control-port "${ports[control]}" >"$scratch/cluster.json" 2>>"$log" &
            ;;
        tidemill*)
            local flags=()
            [ -z "$tidb_flag" ] || flags=(--tidb "$tidb_flag")
            "${TIDEMILL:-$built/tidemill}" server --pd "$pd" --listen "127.0.0.1:${ports[$1]}" \
                "${flags[@]}" >>"$log" 2>&1 &
            ;;
    esac
    pids[$1]=$!
}

start() {
    if [ "$mode" = compose ]; then compose up --detach --no-recreate "$1"; else start_endpoint "$1"; fi
}

# Kills with SIGKILL, which nothing can catch.
kill_hard() {
    say "   SIGKILL $1"
    if [ "$mode" = compose ]; then
        compose kill "$1"
    else
        kill -KILL "${pids[$1]}"
        wait "${pids[$1]}" 2>/dev/null || true
        unset "pids[$1]"
    fi
}

# A line to the test server's control port; its answer must begin with ok.
control() {
    local answer
    exec 3<>"/dev/tcp/127.0.0.1/${ports[control]}"
    printf '%s\n' "$1" >&3
    IFS= read -r answer <&3
    exec 3>&-
    case $answer in ok*) ;; *) die "the test server says to '$1': $answer" ;; esac
}

at() { echo "127.0.0.1:${ports[$1]}"; }
is_up() { sql "$(at "$1")" 'SELECT 1'; }
ready() { eventually "$1 answers" is_up "$1"; }

finish() {
    local status=$? name
    trap - EXIT
    [ -z "$writer" ] || kill "$writer" 2>/dev/null || true
    if [ "$mode" = endpoints ]; then
        # The test server comes last: it fails if it was sent what would have ended a real store.
        for name in tidemill1 tidemill2 cluster; do
            [ -n "${pids[$name]:-}" ] || continue
            kill -TERM "${pids[$name]}" 2>/dev/null || true
            if ! wait "${pids[$name]}" && [ "$status" = 0 ]; then
                step="the end of $name"
                status=1
            fi
        done
        if [ "$status" != 0 ]; then tail -n 20 "$scratch"/*.log >&2 || true; fi
    elif [ -z "${KEEP:-}" ]; then
        if [ "$status" != 0 ]; then compose logs --tail 50 >&2 || true; fi
        compose down --volumes || true
    fi
    if [ -n "${KEEP:-}" ]; then say "kept: $scratch"; else rm -rf "$scratch"; fi
    local left=''
    [ "${#skipped[@]}" = 0 ] || left="; skipped: $(IFS='|'; sed 's/|/; /g' <<<"${skipped[*]}")"
    if [ "$status" = 0 ]; then
        say "verdict: ok, $checks checks$left"
    else
        say "verdict: FAILED at: $step$left"
    fi
    exit "$status"
}
trap finish EXIT
trap 'exit 130' INT TERM

# ---- what is written ----------------------------------------------------------------------------------

# Runs statements where tables are written, at the first place that answers.
write() {
    local place
    for place in "${writers[@]}"; do
        if sql "$place" "$1" 2>"$scratch/write.error"; then return 0; fi
        # It was done by a try whose answer was lost.
        if grep -q 'ERROR 1062' "$scratch/write.error"; then return 0; fi
    done
    return 1
}

transfer() {
    local text from=$((RANDOM % ACCOUNTS)) to=$((RANDOM % (ACCOUNTS - 1)))
    # Another account than the first one.
    [ "$to" -lt "$from" ] || to=$((to + 1))
    text=$(grep -v '^--' "$here/bank-transfer.sql")
    text=${text//:amount/$((RANDOM % 50)).$((10 + RANDOM % 90))}
    text=${text//:from/$from}
    text=${text//:to/$to}
    eventually "transfer $1" write "${text//:id/$1}"
    echo "$1" >>"$scratch/acknowledged"
}

# Pieces of the flights' rows, as statements that may be repeated.
cut_flights() {
    awk -F, -v quote="'" '
        function number(text) { return text == "NA" || text == "" ? "NULL" : text }
        function quoted(text) { return quote text quote }
        NR > 1 {
            at = substr($19, 1, 10) " " substr($19, 12, 8)
            print "(" quoted(at) ", " quoted($10) ", " $11 ", " quoted($13) ", " quoted($14) ", " \
                number($6) ", " number($9) ", " $16 ")"
        }' "$root/examples/data/flights.csv" >"$scratch/rows"
    equal 'rows of flights.csv' "$(wc -l <"$scratch/rows")" "$FLIGHTS"
    split --lines=50 "$scratch/rows" "$scratch/flights."
}

# Takes the next piece of flights that is left.
some_flights() {
    local piece
    for piece in "$scratch"/flights.*; do
        [ -e "$piece" ] || return 0
        eventually 'flights' write "REPLACE INTO flights.flights VALUES $(paste -sd, "$piece")"
        rm "$piece"
        return 0
    done
}

keep_writing() {
    local id=0
    trap - EXIT
    while [ ! -e "$scratch/stop" ]; do
        id=$((id + 1))
        transfer "$id"
        # A client a transfer: what answers has to share the machine with them.
        sleep 0.2
        # Some flights are left to the end.
        if [ $((id % 20)) = 0 ] && [ -e "$scratch/flights.bj" ]; then some_flights; fi
    done
}

# ---- what is checked ----------------------------------------------------------------------------------

# Lines "view query" of the files of views.
views() {
    sed -n 's/^CREATE MATERIALIZED VIEW \([a-z_.]*\) WITH ([^)]*) AS \(SELECT .*\);$/\1 \2/p' "$here"/*-views.sql
}

# Cuts rows on standard input into files at the lines "== view", and prints what else these lines say.
cut_views() {
    awk -F '\t' -v to="$1" -v part="$scratch/part" '
        BEGIN { printf "" >part }
        $1 ~ /^== / {
            close(part)
            name = substr($1, 4)
            system("sort " part " >" to "." name)
            printf "" >part
            print name, $2
            next
        }
        { print >part }'
}

check_place() {
    local place=$1 read_mode view query ts statements='' sums='' expected=''
    for read_mode in fresh wait live stale; do
        sums+="SET tidemill_read_mode = '$read_mode'; SELECT '$read_mode', accounts, total FROM bank.totals;"
        expected+="$read_mode"$'\t'"$ACCOUNTS"$'\t'"$TOTAL"$'\n'
    done
    sums+="SELECT 'table', count(*), sum(balance) FROM bank.account"
    expected+=table$'\t'"$ACCOUNTS"$'\t'"$TOTAL"
    equal "the sum of all accounts at $place" "$(sql "$place" "$sums")" "$expected"
    while read -r view query; do statements+="VERIFY MATERIALIZED VIEW $view;"; done < <(views)
    equal "VERIFY of all views at $place" "$(sql "$place" "$statements")" ''
    statements=
    while read -r view query; do
        statements+="SELECT * FROM $view; SELECT '== $view', @@tidemill_last_read_ts;"
    done < <(views)
    sql "$place" "$statements" | cut_views "$scratch/view" >"$scratch/read"
    statements="SET tidemill_read_mode = 'live';"
    while read -r view query; do
        ts=$(awk -v view="$view" '$1 == view { print $2 }' "$scratch/read")
        [ -n "$ts" ] || die "$view was not read at $place"
        statements+="SET tidemill_snapshot = '$ts'; $query; SELECT '== $view', 0;"
    done < <(views)
    sql "$place" "$statements" | cut_views "$scratch/query" >/dev/null
    while read -r view query; do
        [ -s "$scratch/query.$view" ] || die "$view is empty at $place, so nothing is compared"
        if ! cmp --silent "$scratch/view.$view" "$scratch/query.$view"; then
            diff "$scratch/view.$view" "$scratch/query.$view" | head -20 >&2
        fi
        equal "$view is its query at $place" "$(cksum <"$scratch/view.$view")" "$(cksum <"$scratch/query.$view")"
        rm "$scratch/view.$view" "$scratch/query.$view"
    done < <(views)
    sort "$scratch/acknowledged" >"$scratch/sure"
    sql "$place" 'SELECT id FROM bank.transfer' | sort >"$scratch/there"
    equal "acknowledged transfers that are missing at $place" "$(comm -23 "$scratch/sure" "$scratch/there")" ''
}

check_tidb() {
    [ -n "$TIDB" ] || return 0
    equal 'the sum over the table, from TiDB' "$(sql "$TIDB" 'SELECT sum(balance) FROM bank.account')" "$TOTAL"
    [ -n "$tidb_flag" ] || return 0
    equal 'the sum of all accounts in the view, from TiDB' \
        "$(sql "$TIDB" 'SELECT accounts, total FROM bank.totals')" "$ACCOUNTS"$'\t'"$TOTAL"
    equal 'the sum over the branches in the view, from TiDB' \
        "$(sql "$TIDB" 'SELECT sum(accounts), sum(total) FROM bank.by_branch')" "$ACCOUNTS"$'\t'"$TOTAL"
}

# check names…: everything, at each of these.
check() {
    local name
    for name in "$@"; do check_place "$(at "$name")"; done
    check_tidb
    say "   exact: $checks checks so far, $(wc -l <"$scratch/acknowledged") transfers"
}

has_lease() { [ "$(sql "$(at "$1")" 'SELECT is_here FROM tidemill.lease')" = yes ]; }

holder() {
    if has_lease tidemill1; then echo tidemill1; return; fi
    has_lease tidemill2 && echo tidemill2
}

# ---- the steps ----------------------------------------------------------------------------------------

begin 'the cluster and two processes of Tidemill'
tidb_flag=
if [ "$mode" = compose ]; then
    TIDB=${TIDB-127.0.0.1:4000}
    ports=([tidemill1]=4406 [tidemill2]=4416)
    compose build
    if [ -n "$TIDB" ] && compose run --rm --no-deps tidemill1 server --help | grep -q -- '--tidb '; then
        tidb_flag=tidb:4000
        export TIDEMILL_FLAGS="--tidb $tidb_flag"
    fi
    compose up --detach
else
    TIDB=${TIDB:-}
    first=$(free_ports 7)
    ports=([pd]=$first [stores]=$((first + 1)) [control]=$((first + 4)) [tidemill1]=$((first + 5))
        [tidemill2]=$((first + 6)))
    if [ -n "$TIDB" ] && "${TIDEMILL:-$built/tidemill}" server --help | grep -q -- '--tidb '; then
        tidb_flag=$TIDB
    fi
    pd=${PD:-127.0.0.1:${ports[pd]}}
    if [ -z "${PD:-}" ]; then
        start cluster
        eventually 'the test server is up' test -s "$scratch/cluster.json"
    fi
    start tidemill1
    start tidemill2
fi
ready tidemill1
ready tidemill2
writers=("$(at tidemill1)" "$(at tidemill2)")
if [ -n "$TIDB" ]; then
    writers=("$TIDB")
    eventually 'TiDB answers' sql "$TIDB" 'SELECT 1'
else
    skip 'TiDB: there is none, TIDB=host:port says where one is'
fi
[ -z "$TIDB" ] || [ -n "$tidb_flag" ] || skip 'views read from TiDB: this build has no --tidb'

begin 'tables, rows and views'
: >"$scratch/acknowledged"
for tables in bank flights; do sql "${writers[0]}" "$(cat "$here/$tables-tables.sql")"; done
rows=()
for ((id = 0; id < ACCOUNTS; id++)); do rows+=("($id, 'owner $id', $((id % 5)), $BALANCE)"); done
sql "${writers[0]}" "INSERT INTO bank.account VALUES $(IFS=,; echo "${rows[*]}")"
airlines=$(awk -F, 'NR > 1 { printf "%s('\''%s'\'', '\''%s'\'')", (NR > 2 ? ", " : ""), $1, $2 }' \
    "$root/examples/data/airlines.csv")
sql "${writers[0]}" "INSERT INTO flights.airlines VALUES $airlines"
cut_flights
for _ in {1..10}; do some_flights; done
for job in bank flights; do sql "$(at tidemill1)" "$(cat "$here/$job-views.sql")"; done
jobs=$(sql "$(at "$(holder)")" "SELECT count(*) FROM tidemill.jobs WHERE kind = 'continuous' AND views <> ''")
equal 'the bank and the flights each have a job' "$jobs" 2
keep_writing &
writer=$!
check tidemill1 tidemill2

begin "SIGKILL of the process that runs the jobs"
eventually 'a process has the lease of the jobs' holder
dead=$(holder)
living=tidemill1
[ "$dead" = tidemill2 ] || living=tidemill2
kill_hard "$dead"
eventually "$living takes over the jobs" has_lease "$living"
check "$living"
start "$dead"
ready "$dead"
check tidemill1 tidemill2

begin 'a store is gone'
if [ "$mode" = compose ]; then
    kill_hard tikv1
    check tidemill1 tidemill2
    start tikv1
elif [ -z "${PD:-}" ]; then
    # One process is all stores and PD: here its store 1 breaks every connection and loses its regions; the
    # process itself is killed below.
    control 'down 1'
    control 'elect'
    check tidemill1 tidemill2
    control 'up 1'
else
    skip 'the kill of a store: the cluster is not ours'
fi

begin 'SIGKILL of PD'
if [ "$mode" = compose ]; then
    kill_hard pd
    start pd
elif [ -z "${PD:-}" ]; then
    say '   (the test server: with PD all stores die)'
    kill_hard cluster
    start cluster
    eventually 'the test server is up again' test -s "$scratch/cluster.json"
else
    skip 'the kill of PD: the cluster is not ours'
fi
check tidemill1 tidemill2

if [ "$mode" = compose ] && [ -n "$TIDB" ]; then
    begin 'SIGKILL of TiDB'
    kill_hard tidb
    start tidb
    eventually 'TiDB answers again' sql "$TIDB" 'SELECT 1'
    check tidemill1 tidemill2
fi
skip 'Kafka: no job uses it'

begin 'the end: what is left of the flights'
kill -0 "$writer" || die 'the writer has ended by itself'
: >"$scratch/stop"
wait "$writer" || die 'the writer failed'
writer=
while compgen -G "$scratch/flights.*" >/dev/null; do some_flights; done
check tidemill1 tidemill2
for name in tidemill1 tidemill2; do
    for read_mode in fresh wait; do
        got=$(sql "$(at "$name")" "SET tidemill_read_mode = '$read_mode'; SELECT flights FROM flights.totals")
        equal "flights at $name, mode $read_mode" "$got" "$FLIGHTS"
    done
done
