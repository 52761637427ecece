#!/bin/bash
# Builds the binary of the release before this one and prints its path: the commit
# before HEAD, HEAD itself while the tree has changes, or the commit that
# PREVIOUS_COMMIT names. Each commit is built once, outside the checkout, in
# ${XDG_CACHE_HOME:-$HOME/.cache}/execution-plane/previous.
# Exit code 3: the history is not here; stderr says how to get it.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)
cache="${XDG_CACHE_HOME:-${HOME:?}/.cache}/execution-plane/previous"
cd "$root"

# The checkout may belong to somebody else, as in a container.
git() { command git -c safe.directory="$root" "$@"; }

absent() {
	echo "previous: $1" >&2
	echo "previous: $2" >&2
	exit 3
}

command -v git >/dev/null || absent "git is not installed" "install git, and work in a clone of the repository"
if [ "$(git rev-parse --show-toplevel 2>/dev/null)" != "$root" ]; then
	absent "$root is no git checkout, so the release before this one cannot be built" "work in a clone of the repository: git clone"
fi

name=${PREVIOUS_COMMIT:-}
if [ -z "$name" ]; then
	name=HEAD
	[ -n "$(git status --porcelain)" ] || name=HEAD^
fi
if ! commit=$(git rev-parse --verify --quiet "$name^{commit}"); then
	if [ "$(git rev-parse --is-shallow-repository)" = true ]; then
		absent "commit $name is not in this shallow clone" "fetch it with: git fetch --deepen=50    (or all: git fetch --unshallow)"
	fi
	absent "there is no commit $name" "PREVIOUS_COMMIT may name another one that this clone has; git fetch --all brings what is missing"
fi

binary="$cache/$commit/execution-plane"
if [ ! -x "$binary" ]; then
	mkdir -p "$cache"
	find "$cache" -mindepth 1 -maxdepth 1 -mtime +14 -exec rm -rf {} +
	tmp=$(mktemp -d "$cache/build.XXXXXX")
	trap 'rm -rf "$tmp"' EXIT
	echo "previous: building commit $(git log -1 --format='%h %s' "$commit")" >&2
	mkdir "$tmp/src"
	git archive "$commit" | tar -x -C "$tmp/src"
	(cd "$tmp/src" && GOWORK=off CGO_ENABLED=0 go build -mod=readonly -buildvcs=false -trimpath -o "$tmp/out/execution-plane" ./cmd/execution-plane)
	# Whoever comes second keeps what is there.
	mv -T "$tmp/out" "$cache/$commit" 2>/dev/null || [ -x "$binary" ]
fi
printf '%s\n' "$binary"
