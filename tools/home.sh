#!/bin/sh
# Prints a home folder that can be written to: HOME, unless it is unset, / or
# closed, else a private folder in the temporary one.
set -eu
if [ -n "${HOME:-}" ] && [ "$HOME" != / ] && [ -d "$HOME" ] && [ -w "$HOME" ]; then
	printf '%s\n' "$HOME"
	exit 0
fi
uid=$(id -u)
home="${TMPDIR:-/tmp}/execution-plane-home-$uid"
mkdir -p -m 700 "$home"
if [ "$(stat -c %u "$home")" != "$uid" ]; then
	echo "home: $home belongs to somebody else, set HOME" >&2
	exit 1
fi
printf '%s\n' "$home"
