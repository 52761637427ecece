#!/bin/sh
# Fetches Apache Kafka, which the tests run against, with Maven into
# ${XDG_CACHE_HOME:-$HOME/.cache}/execution-plane/peers/kafka: its jars, an empty
# formatted storage, and an archive of the classes that a start loads, which halves
# its time. Does nothing if all that was made from the same files by the same Java.
#
#   build.sh        every jar must be the one in jars.sha256
#   build.sh lock   writes jars.sha256 anew, after a change of pom.xml
set -eu

here=$(cd "$(dirname "$0")" && pwd)
dest="${XDG_CACHE_HOME:-$HOME/.cache}/execution-plane/peers/kafka"
cd "$here"

fail() {
	echo "peers/kafka: $*" >&2
	exit 1
}

sha256() { if command -v sha256sum >/dev/null; then sha256sum "$@"; else shasum -a 256 "$@"; fi; }
sums() (cd "$1" && export LC_ALL=C && sha256 ./*.jar | sed 's|\./||')

# internal/kafkatest looks for Java in the same order.
java=java
if [ -n "${JAVA_HOME:-}" ] && [ -x "$JAVA_HOME/bin/java" ]; then
	java="$JAVA_HOME/bin/java"
fi
missing="on Debian or Ubuntu run as root: apt-get install -y --no-install-recommends default-jre-headless maven"
command -v "$java" >/dev/null || fail "there is no Java; $missing"
version=$("$java" -version 2>&1) || fail "$java does not run: $version"
major=$(printf '%s\n' "$version" | sed -n 's/.* version "\([0-9]*\).*/\1/p' | head -n 1)
[ "${major:-0}" -ge 17 ] || fail "Kafka needs Java 17 or newer; JAVA_HOME may name it; $java is: $version"

# The first line is what the tests compare; see internal/kafkatest.
stamp() { printf '%s\n%s' "$(cat build.sh jars.sha256 pom.xml server.properties | sha256 | cut -d' ' -f1)" "$version"; }

mkdir -p "$dest"
# Two builds at once would pull the jars from under each other.
if command -v flock >/dev/null; then
	exec 9>"$dest/lock"
	flock 9
fi
if [ "${1:-}" != lock ] && [ -d "$dest/libs" ] && [ -f "$dest/stamp" ] && [ "$(cat "$dest/stamp")" = "$(stamp)" ]; then
	echo "peers/kafka: up to date in $dest"
	exit 0
fi

tmp=$(mktemp -d "$dest/build.XXXXXX")
broker=
cleanup() {
	if [ -n "$broker" ]; then
		kill -KILL "$broker" 2>/dev/null || :
	fi
	rm -rf "$tmp"
}
trap cleanup EXIT
trap 'exit 1' HUP INT TERM

# The stamp goes first and comes last, so that it never vouches for other files.
rm -rf "$dest/stamp" "$dest/storage" "$dest/classes.jsa"
if [ "${1:-}" = lock ] || [ ! -d "$dest/libs" ] || ! sums "$dest/libs" 2>/dev/null | cmp -s - jars.sha256; then
	command -v mvn >/dev/null || fail "there is no Maven; $missing"
	echo "peers/kafka: fetching Apache Kafka (a minute or two)"
	mvn --batch-mode --no-transfer-progress --quiet --strict-checksums --file pom.xml \
		-Dmaven.repo.local="$tmp/repository" \
		dependency:copy-dependencies -DincludeScope=runtime -DoutputDirectory="$tmp/libs"
	sums "$tmp/libs" >"$tmp/jars.sha256"
	if [ "${1:-}" = lock ]; then
		cp "$tmp/jars.sha256" jars.sha256
		echo "peers/kafka: wrote $here/jars.sha256"
	fi
	diff jars.sha256 "$tmp/jars.sha256" >&2 || fail "the jars are not those of jars.sha256"
	rm -rf "$dest/libs"
	mv "$tmp/libs" "$dest/libs"
fi
cp server.properties "$dest/server.properties"

# The archive holds for this very class path and collector.
jvm() { # in a subshell always, which it takes the place of: a signal reaches Java itself
	exec "$java" -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:-UsePerfData -Xmx256m -Djava.io.tmpdir="$tmp" "$@" 9>&-
}
configure() { # client port; the next two are the node's own
	cat server.properties
	echo "listeners=CLIENT://127.0.0.1:$1,INTERNAL://127.0.0.1:$(($1 + 1)),CONTROLLER://127.0.0.1:$(($1 + 2))"
	echo "controller.quorum.voters=1@127.0.0.1:$(($1 + 2))"
	echo "log.dirs=$tmp/storage"
}
quiet=-Dorg.slf4j.simpleLogger.defaultLogLevel=warn

port=$((20000 + $$ * 3 % 12000))
configure "$port" >"$tmp/server.properties"
id=$(jvm "$quiet" -cp "$dest/libs/*" kafka.tools.StorageTool random-uuid)
(jvm "$quiet" -cp "$dest/libs/*" kafka.tools.StorageTool format -t "$id" -c "$tmp/server.properties") >"$tmp/format.log" 2>&1 ||
	fail "formatting the storage: $(cat "$tmp/format.log")"
cp -R "$tmp/storage" "$dest/storage"

echo "peers/kafka: starting it once"
jvm "$quiet" -Dorg.slf4j.simpleLogger.log.kafka.server.KafkaRaftServer=info -XX:ArchiveClassesAtExit="$tmp/classes.jsa" \
	-cp "$dest/libs/*" kafka.Kafka "$tmp/server.properties" >"$tmp/broker.log" 2>&1 &
broker=$!
waited=0
until grep -q 'Kafka Server started' "$tmp/broker.log"; do
	kill -0 "$broker" 2>/dev/null && [ "$waited" -lt 180 ] || fail "it did not start; try again: $(cat "$tmp/broker.log")"
	sleep 1
	waited=$((waited + 1))
done
tool() { (jvm "$quiet" -cp "$dest/libs/*" "$@" --bootstrap-server "127.0.0.1:$port") >"$tmp/tool.log" 2>&1 || fail "$1: $(cat "$tmp/tool.log")"; }
# What a first message loads belongs to the archive too.
tool org.apache.kafka.tools.TopicCommand --create --topic first
echo message | tool org.apache.kafka.tools.ConsoleProducer --topic first
tool org.apache.kafka.tools.consumer.ConsoleConsumer --topic first --from-beginning --max-messages 1 --timeout-ms 60000
grep -qx message "$tmp/tool.log" || fail "it did not give its message back: $(cat "$tmp/tool.log")"
kill -TERM "$broker"
# 143: ended by the signal that was sent.
wait "$broker" || [ $? -eq 143 ] || fail "it did not end well: $(cat "$tmp/broker.log")"
broker=
if [ -f "$tmp/classes.jsa" ]; then
	mv "$tmp/classes.jsa" "$dest/classes.jsa"
else
	echo "peers/kafka: this Java keeps no archive of classes; starts are slower"
fi
stamp >"$tmp/stamp"
mv "$tmp/stamp" "$dest/stamp"
echo "peers/kafka: built $dest"
