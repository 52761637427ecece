#!/bin/bash
# Makes sure that what the tests of the Ansible and SSH runners and of the isolation
# run for real is on this machine: sshd, ansible-core, bubblewrap, podman, runc and
# newuidmap. What is missing comes from the distribution's packages, as root or by a
# sudo that asks nothing; ansible-core may also come from PyPI, into
# ${XDG_CACHE_HOME:-$HOME/.cache}/execution-plane/peers/hosts/ansible. It never asks.
# Where it cannot, it prints the one line for an administrator and ends with 1.
# Says nothing and takes no time if all is there.
#
#   install.sh           all of them
#   install.sh ansible   prints the folder of ansible-playbook, and installs nothing
set -euo pipefail

# An ordinary user's PATH seldom has the folders of sshd and runc.
PATH="$PATH:/usr/sbin:/sbin"
dest="${XDG_CACHE_HOME:-$HOME/.cache}/execution-plane/peers/hosts"
# The version that the suite runs where the distribution has none.
ansible_core=2.21.5
ansible_python="3.12 or newer"

fail() {
	echo "peers/hosts: $*" >&2
	exit 1
}

# ansible gives the folder of ansible-playbook; the distribution's goes first.
ansible() {
	local found
	if found=$(command -v ansible-playbook); then
		dirname "$found"
		return
	fi
	[ -x "$dest/ansible/bin/ansible-playbook" ] && [ -f "$dest/ansible/complete" ] && echo "$dest/ansible/bin"
}

# missing lists the distribution's packages that are not here.
missing() {
	command -v sshd >/dev/null || echo openssh-server
	command -v ssh-keygen >/dev/null || echo openssh-client
	[ -n "$(sftp_server)" ] || echo openssh-sftp-server
	command -v bwrap >/dev/null || echo bubblewrap
	command -v podman >/dev/null || echo podman
	command -v runc >/dev/null || echo runc
	command -v newuidmap >/dev/null || echo uidmap
	command -v setsid >/dev/null || echo util-linux
	ansible >/dev/null || echo ansible-core
}

sftp_server() {
	local file
	for file in /usr/lib/openssh/sftp-server /usr/libexec/openssh/sftp-server /usr/lib/ssh/sftp-server /usr/libexec/sftp-server; do
		if [ -x "$file" ]; then
			echo "$file"
			return
		fi
	done
}

case "${1:-}" in
ansible)
	ansible || fail "there is no ansible-playbook; run \`make peers-hosts\`"
	exit 0
	;;
"") ;;
*) fail "it takes nothing or ansible, not $1" ;;
esac

mapfile -t packages < <(missing)
if [ ${#packages[@]} -eq 0 ]; then
	exit 0
fi

# become is how packages are installed; empty for root.
become=()
can_install=false
if command -v apt-get >/dev/null; then
	if [ "$(id -u)" -eq 0 ]; then
		can_install=true
	elif command -v sudo >/dev/null && sudo -n true 2>/dev/null; then
		can_install=true
		become=(sudo -n)
	fi
fi

# from_pypi installs ansible-core for this user alone.
from_pypi() {
	local python
	for python in python3.14 python3.13 python3.12 python3; do
		if command -v "$python" >/dev/null && "$python" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 12))' 2>/dev/null; then
			echo "peers/hosts: ansible-core $ansible_core from PyPI into $dest/ansible"
			mkdir -p "$dest"
			rm -rf "$dest/ansible"
			"$python" -m venv "$dest/ansible"
			"$dest/ansible/bin/pip" install --quiet --disable-pip-version-check --no-input "ansible-core==$ansible_core"
			touch "$dest/ansible/complete"
			return 0
		fi
	done
	return 1
}

line="apt-get install -y --no-install-recommends ${packages[*]}"
if ! $can_install; then
	if [ "${packages[*]}" = ansible-core ] && from_pypi; then
		exit 0
	fi
	echo "peers/hosts: missing: ${packages[*]}" >&2
	echo "peers/hosts: on Debian or Ubuntu an administrator runs: sudo $line" >&2
	echo "peers/hosts: elsewhere install them by your system's means; ansible-core $ansible_core comes from PyPI by itself where python3 is $ansible_python" >&2
	exit 1
fi

mkdir -p "$dest"
# Two test runs at once would wait for apt's lock with an error.
if command -v flock >/dev/null; then
	exec 9>"$dest/lock"
	flock 9
	mapfile -t packages < <(missing)
	if [ ${#packages[@]} -eq 0 ]; then
		exit 0
	fi
	line="apt-get install -y --no-install-recommends ${packages[*]}"
fi
echo "peers/hosts: $line"
# The tests start servers of their own; the packages shall start none now.
guard=/usr/sbin/policy-rc.d
if [ ! -e "$guard" ]; then
	trap '"${become[@]}" rm -f "$guard"' EXIT
	trap 'exit 1' HUP INT TERM
	printf '#!/bin/sh\nexit 101\n' | "${become[@]}" tee "$guard" >/dev/null
	"${become[@]}" chmod 0755 "$guard"
fi
install() {
	"${become[@]}" env DEBIAN_FRONTEND=noninteractive apt-get update -q </dev/null &&
		"${become[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends -o Dpkg::Options::=--force-confold "$@" </dev/null
}
if ! install "${packages[@]}"; then
	# An old distribution may lack ansible-core alone.
	rest=()
	for package in "${packages[@]}"; do
		[ "$package" = ansible-core ] || rest+=("$package")
	done
	[ ${#rest[@]} -lt ${#packages[@]} ] || fail "apt-get failed; what it said stands above"
	[ ${#rest[@]} -eq 0 ] || install "${rest[@]}" || fail "apt-get failed; what it said stands above"
	from_pypi || fail "apt-get has no ansible-core, and PyPI's needs python3 $ansible_python with venv"
fi

mapfile -t packages < <(missing)
[ ${#packages[@]} -eq 0 ] || fail "still missing after the installation: ${packages[*]}"
