#!/bin/bash
# Looks for what the tests need and installs what is missing, as root on Debian
# and its kin. Elsewhere it prints the line that does it. It never asks.
#
#   deps.sh         what every test run needs
#   deps.sh kafka   what the Kafka peer needs
set -euo pipefail

missing=()

have_postgres() {
	local dir
	if [ -n "${PGBIN:-}" ]; then
		[ -x "$PGBIN/postgres" ] && [ -x "$PGBIN/initdb" ]
		return
	fi
	for dir in /usr/lib/postgresql/*/bin /usr/pgsql-*/bin; do
		if [ -x "$dir/postgres" ] && [ -x "$dir/initdb" ]; then
			return 0
		fi
	done
	command -v postgres >/dev/null && [ -x "$(dirname "$(readlink -f "$(command -v postgres)")")/initdb" ]
}

case "${1:-}" in
kafka)
	command -v java >/dev/null || [ -n "${JAVA_HOME:+$(command -v "$JAVA_HOME/bin/java")}" ] || missing+=(default-jre-headless)
	command -v mvn >/dev/null || missing+=(maven)
	;;
*)
	have_postgres || missing+=(postgresql)
	# The race detector links with a C compiler.
	command -v gcc >/dev/null || command -v clang >/dev/null || missing+=(gcc libc6-dev)
	;;
esac

if [ ${#missing[@]} -eq 0 ]; then
	exit 0
fi

line="apt-get install -y --no-install-recommends ${missing[*]}"
if [ "$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null; then
	echo "deps: missing: ${missing[*]}" >&2
	echo "deps: on Debian or Ubuntu run: sudo $line" >&2
	echo "deps: elsewhere install them by your system's means; PGBIN may name the folder of postgres and initdb, JAVA_HOME that of Java" >&2
	exit 1
fi

echo "deps: $line"
# The tests start servers of their own; the package shall not start another.
if [ ! -e /etc/postgresql-common/createcluster.conf ]; then
	mkdir -p /etc/postgresql-common
	echo 'create_main_cluster = false' >/etc/postgresql-common/createcluster.conf
fi
export DEBIAN_FRONTEND=noninteractive
apt-get update -q </dev/null
apt-get install -y -q --no-install-recommends -o Dpkg::Options::=--force-confold "${missing[@]}" </dev/null
