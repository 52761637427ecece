// Package policy is the policy bundle: a folder of YAML files, loaded as one,
// with a digest, default deny. The dispatcher decides with it at submit
// (Decide), the runner decides with exactly the same bundle on what it is about
// to do: the address it really dials (CheckDial), the package, command, file,
// service, host keys and probe it uses (PackageGrant and its like), the secrets
// it reads (DecideSecrets) and the secret artifacts it stores (DecideStore).
// Explain tells what became of each rule.
//
// What may be touched: a new rule kind is one file that reads it (read_*.go),
// one field of Bundle, one check in decide.go or a file of its own that tells
// why it skips a rule, its fields in docs/policy.schema.json and its example in
// docs/policy.md. The same input under the same bundle must give the same
// verdict for ever, so a change of meaning needs a new field, never a new
// reading of an old one.
//
// The package is pure apart from reading an fs.FS: no clock, no randomness, no
// network, no name resolution. It imports the standard library, the YAML parser
// and CEL only. What CEL may do is bounded in condition.go: no function that
// reads the machine, maps in order of their keys, a cost limit.
package policy
