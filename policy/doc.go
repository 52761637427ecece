// Package policy is the policy bundle: a folder of YAML files, loaded as one,
// with a digest, default deny. The dispatcher decides with it at submit
// (Decide), the runner decides with exactly the same bundle on the address it
// really dials (CheckDial), on the secrets it reads (DecideSecrets) and on the
// secret artifacts it stores (DecideStore).
//
// What may be touched: a new rule kind is one file that reads it (read_*.go),
// one field of Bundle, and one check in decide.go or a file of its own. The
// same input under the same bundle must give the same verdict for ever, so a
// change of meaning needs a new field, never a new reading of an old one.
//
// The package is pure apart from reading an fs.FS: no clock, no randomness, no
// network, no name resolution. It imports the standard library and the YAML
// parser only.
package policy
