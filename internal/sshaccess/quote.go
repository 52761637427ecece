package sshaccess

import (
	"fmt"
	"strings"
)

// maxCommand bounds a whole command, in bytes: systems take 128 KiB and more.
const maxCommand = 64 << 10

// Quote words an argument vector so that a POSIX shell reads exactly this vector
// back: every byte but NUL, newlines included. It is the only way by which text
// gets into a command.
//
// Between single quotes a shell takes every byte literally, and nothing else is
// ever outside of them but blanks and \', which stands for the quote itself.
func Quote(argv []string) (string, error) {
	var b strings.Builder
	for i, arg := range argv {
		if strings.IndexByte(arg, 0) >= 0 {
			return "", fmt.Errorf("argument %d: a text with a NUL byte %w of a program", i, ErrArgument)
		}
		if i > 0 {
			b.WriteByte(' ')
		}
		b.WriteByte('\'')
		b.WriteString(strings.ReplaceAll(arg, `'`, `'\''`))
		b.WriteByte('\'')
		if b.Len() > maxCommand {
			return "", fmt.Errorf("argument %d: more than %d bytes of arguments %w list", i, maxCommand, ErrArgument)
		}
	}
	return b.String(), nil
}

// command is the whole vector with sudo before it. A program's name cannot begin
// with a dash or be empty, nor hold "=" under sudo, which would read an assignment.
func command(argv []string, sudo string) (string, error) {
	switch {
	case len(argv) == 0 || argv[0] == "":
		return "", fmt.Errorf("a command without a program %w list", ErrArgument)
	case strings.HasPrefix(argv[0], "-"):
		return "", fmt.Errorf("a program whose name begins with a dash %w list's first", ErrArgument)
	case sudo != "" && strings.Contains(argv[0], "="):
		return "", fmt.Errorf("a program with = in its name %w of sudo", ErrArgument)
	}
	if sudo != "" {
		if err := CheckUser(sudo); err != nil {
			return "", err
		}
		argv = append(sudoPrefix(sudo), argv...)
	}
	return Quote(argv)
}

// sudoPrefix never lets sudo ask for a password, and ends its options.
func sudoPrefix(user string) []string { return []string{"sudo", "-n", "-u", user, "--"} }
