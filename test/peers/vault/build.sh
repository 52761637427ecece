#!/bin/sh
# Builds the Vault server that the tests run against, from this folder's module, into
# ${XDG_CACHE_HOME:-$HOME/.cache}/execution-plane/peers/vault. Does nothing if the
# binary there was built from the same sources by the same Go.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
dest="${XDG_CACHE_HOME:-$HOME/.cache}/execution-plane/peers/vault"
cd "$here"

# The first line is what the tests compare; see internal/vaulttest.
sum=$(cat ./*.go okta/okta/*.go go.mod go.sum | { sha256sum 2>/dev/null || shasum -a 256; } | cut -d' ' -f1)
stamp=$(printf '%s\n%s' "$sum" "$(go version)")
if [ -x "$dest/vault-peer" ] && [ -f "$dest/stamp" ] && [ "$(cat "$dest/stamp")" = "$stamp" ]; then
	echo "peers/vault: up to date in $dest"
	exit 0
fi

mkdir -p "$dest"
tmp=$(mktemp -d "$dest/build.XXXXXX")
trap 'rm -rf "$tmp"' EXIT
echo "peers/vault: building vault-peer (many minutes the first time)"
CGO_ENABLED=0 go build -mod=readonly -ldflags '-s -w' -o "$tmp/vault-peer" .
printf '%s\n' "$stamp" >"$tmp/stamp"
# The stamp goes first and comes last, so that it never vouches for another binary.
rm -f "$dest/stamp"
mv -f "$tmp/vault-peer" "$dest/vault-peer"
mv -f "$tmp/stamp" "$dest/stamp"
echo "peers/vault: built $dest/vault-peer"
