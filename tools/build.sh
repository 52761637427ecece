#!/bin/sh
# Builds golangci-lint from this folder's module to the path given. Does nothing
# if the binary there was built from the same go.mod and go.sum by the same Go.
set -eu

dest=${1:?usage: build.sh <path of the binary>}
here=$(cd "$(dirname "$0")" && pwd)
cd "$here"

sum=$(cat go.mod go.sum | sha256sum | cut -d' ' -f1)
stamp=$(printf '%s\n%s' "$sum" "$(go version)")
if [ -x "$dest" ] && [ -f "$dest.stamp" ] && [ "$(cat "$dest.stamp")" = "$stamp" ]; then
	exit 0
fi

mkdir -p "$(dirname "$dest")"
tmp=$(mktemp -d "$dest.XXXXXX")
trap 'rm -rf "$tmp"' EXIT
echo "tools: building golangci-lint (some minutes the first time)"
CGO_ENABLED=0 go build -mod=readonly -trimpath -ldflags '-s -w' -o "$tmp/golangci-lint" github.com/golangci/golangci-lint/v2/cmd/golangci-lint
printf '%s\n' "$stamp" >"$tmp/stamp"
# The stamp goes first and comes last, so that it never vouches for another binary.
rm -f "$dest.stamp"
mv -f "$tmp/golangci-lint" "$dest"
mv -f "$tmp/stamp" "$dest.stamp"
echo "tools: built $dest"
