package sshaccess

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"strings"
	"time"
)

// shellCommand is what the host is asked to run: a shell that reads its script from
// its input. The login shell of the user, which may be of any kind, parses these
// words and nothing else.
const shellCommand = "exec /bin/sh -s"

// RunVariable is in the environment of every program that Run starts. It finds
// what left the program's process group.
const RunVariable = "EXECUTION_PLANE_RUN"

// A run is known on the host by its token and its process group.
func newToken() string {
	var b [12]byte
	// It never fails, see crypto/rand.
	_, _ = rand.Read(b[:])
	return hex.EncodeToString(b[:])
}

// reapFunctions end a process tree. In the shell's variables: g the process group
// (0: unknown), t the token, n the tenths of a second between TERM and KILL, s the
// user of sudo, empty without, k what was found so far. A process is of the tree when
// it is in the group or its session, is marked by the token, was started by one that
// is, or was found before, zombies aside. It is named by its number and, as numbers are
// used again, by when it started. Nothing counts as gone at one look: a process that is
// being made, or that is changing its program, can be missed by it.
const reapFunctions = `
members() {
	if [ ! -r /proc/self/stat ]; then
		[ "$g" != 0 ] && kill -0 -- "-$g" 2>/dev/null && echo "-$g"
		return 0
	fi
	marked=" $(echo $(grep -lF "` + RunVariable + `=$t" /proc/[0-9]*/environ 2>/dev/null)) "
	all= found=" "
	for f in /proc/[0-9]*/stat; do
		l=
		{ read -r l <"$f"; } 2>/dev/null || continue
		p=${f#/proc/}
		p=${p%/stat}
		l=${l##*) }
		set -- $l
		[ "${1:-Z}" = Z ] && continue
		if [ "$g" != 0 ] && { [ "${3:-}" = "$g" ] || [ "${4:-}" = "$g" ]; }; then
			found="$found$p/${20:-0} "
			continue
		fi
		case "$k " in *" $p/${20:-0} "*) found="$found$p/${20:-0} "; continue ;; esac
		case $marked in *" /proc/$p/environ "*) found="$found$p/${20:-0} "; continue ;; esac
		case ${2:-0} in 0 | 1) ;; *) all="$all $p/$2/${20:-0}" ;; esac
	done
	# Children, until there are no more of them.
	more=1
	while [ -n "$more" ]; do
		more=
		for e in $all; do
			p=${e%%/*}
			e=${e#*/}
			case $found in *" $p/${e#*/} "*) continue ;; esac
			case $found in *" ${e%%/*}/"*) found="$found$p/${e#*/} "; more=1 ;; esac
		done
	done
	for e in $found; do echo "$e"; done
	# Processes of another user may be hidden; that they are there is told all the same.
	if [ "$g" != 0 ]; then
		case $(LC_ALL=C kill -s 0 -- "-$g" 2>&1) in
		*[Pp]ermitted*) echo "-$g" ;;
		esac
	fi
}
send() {
	[ "$g" = 0 ] || kill -s "$1" -- "-$g" 2>/dev/null
	for p in $2; do
		kill -s "$1" -- "${p%%/*}" 2>/dev/null
	done
	[ -z "$s" ] || [ "$g" = 0 ] || sudo -n -u "$s" -- kill -s "$1" -- "-$g" </dev/null >/dev/null 2>&1
}
nap() { sleep 0.1 2>/dev/null || sleep 1; }
look() {
	m=$(members)
	for p in $m; do
		case "$k " in *" $p "*) ;; *) k="$k $p" ;; esac
	done
	[ -z "$m" ]
}
gone() {
	look || return 1
	nap
	look
}
reap() {
	gone && return 0
	send TERM "$m"
	i=0
	while [ "$i" -lt "$n" ]; do
		gone && return 0
		nap
		i=$((i + 1))
	done
	i=0
	while [ "$i" -lt 30 ]; do
		gone && return 0
		send KILL "$m"
		nap
		i=$((i + 1))
	done
	return 1
}
`

// reapVariables sets what reapFunctions read, but the group.
func reapVariables(token string, grace time.Duration, sudo string) (string, error) {
	user, err := Quote([]string{sudo})
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("t=%s n=%d s=%s k=", token, grace/(100*time.Millisecond), user), nil
}

// runScript starts the command in a session of its own and tells on both of its
// outputs, before the command says anything, the token and its process group. When
// the connection goes away, the input ends, and what runs is ended then.
//
// The whole is one compound command, so that the shell has read all of it before it
// begins, and a script that was cut off runs nothing.
func runScript(token, command, variables string) string {
	var b strings.Builder
	b.WriteString("{\nexec 3<&0 </dev/null\n")
	b.WriteString(reapFunctions)
	fmt.Fprintf(&b, "%s g=0\n", variables)
	fmt.Fprintf(&b, "command -v setsid >/dev/null 2>&1 || { echo 'the host has no setsid' >&2; exit 127; }\n")
	fmt.Fprintf(&b, "set -- %s\n", command)
	// A shell starts what is in the background deaf to INT and QUIT; nothing sends
	// those here.
	fmt.Fprintf(&b, "%s=%s setsid /bin/sh -c 'echo \"$0 $$\"; echo \"$0 $$\" >&2; exec \"$@\"' %s \"$@\" 3<&- &\n", RunVariable, token, token)
	b.WriteString(`g=$!
(
	trap '' HUP INT
	read -r l <&3
	trap '' TERM
	reap
) >/dev/null 2>&1 &
w=$!
# What a shell says about a child that a signal ended is no output of the program.
exec >/dev/null 2>&1 3<&-
wait "$g"
r=$?
# It ends now, unless it is ending what the program left.
kill -s TERM "$w"
wait "$w"
exit "$r"
}
`)
	return b.String()
}

// reapScript ends the tree of a run from another session, and says how it went.
func reapScript(token string, group int, variables string) string {
	return fmt.Sprintf("{\nexec </dev/null\n%s\n%s g=%d\nif reap; then echo '%s gone'; else echo '%s left'; fi\nexit 0\n}\n",
		reapFunctions, variables, group, token, token)
}
