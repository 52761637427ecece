package packages

import (
	"errors"
	"fmt"
)

// Code says what is wrong with a package. Codes never change their meaning.
type Code string

// The codes.
const (
	NotAPackage     Code = "not_a_package"  // neither gzip nor zstd
	Broken          Code = "broken_archive" // cut off, or no tar
	TrailingData    Code = "trailing_data"  // something follows the tar's end
	WindowTooLarge  Code = "window_too_large"
	CompressedLarge Code = "compressed_too_large"
	TooLarge        Code = "too_large"
	FileTooLarge    Code = "file_too_large"
	TooManyEntries  Code = "too_many_entries"
	RatioTooHigh    Code = "ratio_too_high"
	TooDeep         Code = "too_deep"
	NameTooLong     Code = "name_too_long"
	NameAbsolute    Code = "name_absolute"
	NameParent      Code = "name_parent" // .. in a name
	NameInvalid     Code = "name_invalid"
	NameNotUTF8     Code = "name_not_utf8"
	NameControl     Code = "name_control"
	Duplicate       Code = "duplicate_name"
	CaseCollision   Code = "case_collision"
	NameConflict    Code = "name_conflict" // below what is no folder
	HardLink        Code = "hard_link"
	Device          Code = "device"
	SpecialFile     Code = "special_file" // fifo and all other kinds
	Sparse          Code = "sparse_file"
	Extension       Code = "extension" // a header for all entries
	LinkAbsolute    Code = "link_absolute"
	LinkOutside     Code = "link_outside"
	LinkBroken      Code = "link_broken"
	LinkLoop        Code = "link_loop"
	NoManifest      Code = "no_manifest"
	ManifestInvalid Code = "manifest_invalid"
	ListedMissing   Code = "listed_missing"
)

// Refused says that a package is not taken, and why. Any other error of this
// package is the disk's or the reader's.
type Refused struct {
	Code Code
	Name string // the entry, if it is about one; may hold anything
	Text string // for people; safe to show
}

func (r *Refused) Error() string { return r.Text }

// CodeOf gives the code of the *Refused in err's chain, or "".
func CodeOf(err error) Code {
	var r *Refused
	if errors.As(err, &r) {
		return r.Code
	}
	return ""
}

func refuse(code Code, format string, args ...any) *Refused {
	return &Refused{Code: code, Text: fmt.Sprintf(format, args...)}
}

// refuseEntry words what is wrong with one entry. Its name is quoted and cut.
func refuseEntry(code Code, name, format string, args ...any) *Refused {
	return &Refused{Code: code, Name: name, Text: shown(name) + ": " + fmt.Sprintf(format, args...)}
}

// shown is a foreign name as an error text may hold it.
func shown(name string) string {
	const most = 120
	if len(name) > most {
		return fmt.Sprintf("%q…", name[:most])
	}
	return fmt.Sprintf("%q", name)
}
