#!/bin/sh
# Builds the S3 server that the tests run against, from this folder's module, into
# ${XDG_CACHE_HOME:-$HOME/.cache}/execution-plane/peers/s3. Does nothing if the
# binary there was built from the same go.mod and go.sum by the same Go.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
dest="${XDG_CACHE_HOME:-$HOME/.cache}/execution-plane/peers/s3"
cd "$here"

# The first line is what the tests compare; see internal/s3test.
sum=$(cat go.mod go.sum | { sha256sum 2>/dev/null || shasum -a 256; } | cut -d' ' -f1)
stamp=$(printf '%s\n%s' "$sum" "$(go version)")
if [ -x "$dest/versitygw" ] && [ -f "$dest/stamp" ] && [ "$(cat "$dest/stamp")" = "$stamp" ]; then
	echo "peers/s3: up to date in $dest"
	exit 0
fi

mkdir -p "$dest"
tmp=$(mktemp -d "$dest/build.XXXXXX")
trap 'rm -rf "$tmp"' EXIT
echo "peers/s3: building versitygw (some minutes the first time)"
CGO_ENABLED=0 go build -mod=readonly -trimpath -ldflags '-s -w' -o "$tmp/versitygw" github.com/versity/versitygw/cmd/versitygw
printf '%s\n' "$stamp" >"$tmp/stamp"
# The stamp goes first and comes last, so that it never vouches for another binary.
rm -f "$dest/stamp"
mv -f "$tmp/versitygw" "$dest/versitygw"
mv -f "$tmp/stamp" "$dest/stamp"
echo "peers/s3: built $dest/versitygw"
