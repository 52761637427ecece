#!/bin/sh
# Runs the broker of the tests for people, on loopback, until it is told to end:
#
#   run.sh [port]   9092 unless said otherwise; the next two ports are the node's own
#
# Its data is kept in ${XDG_STATE_HOME:-$HOME/.local/state}/execution-plane/kafka.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
"$here/build.sh" >&2
made="${XDG_CACHE_HOME:-$HOME/.cache}/execution-plane/peers/kafka"
data="${XDG_STATE_HOME:-$HOME/.local/state}/execution-plane/kafka"
port=${1:-9092}

java=java
if [ -n "${JAVA_HOME:-}" ] && [ -x "$JAVA_HOME/bin/java" ]; then
	java="$JAVA_HOME/bin/java"
fi
mkdir -p "$data"
[ -d "$data/storage" ] || cp -R "$made/storage" "$data/storage"
{
	cat "$here/server.properties"
	echo "listeners=CLIENT://127.0.0.1:$port,INTERNAL://127.0.0.1:$((port + 1)),CONTROLLER://127.0.0.1:$((port + 2))"
	echo "controller.quorum.voters=1@127.0.0.1:$((port + 2))"
	echo "log.dirs=$data/storage"
} >"$data/server.properties"

cat >&2 <<END
Kafka comes up on 127.0.0.1:$port; Ctrl-C ends it; its data is kept in $data
  execution-plane serve --dev --kafka-brokers 127.0.0.1:$port
  go run ./examples/consumer --brokers 127.0.0.1:$port
END
exec "$java" -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:-UsePerfData -Xmx256m -Djava.io.tmpdir="$data" \
	-Dorg.slf4j.simpleLogger.defaultLogLevel=warn -cp "$made/libs/*" kafka.Kafka "$data/server.properties"
