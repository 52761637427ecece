package masker

import "github.com/platform-core/execution-plane-service/masker/fingerprint"

// pattern is one byte string to look for.
type pattern struct {
	text   []byte
	raw    []byte  // with its white space, for the prints
	gaps   []int32 // indexes after which the secret has white space
	kind   uint32
	secret int32
	print  printRule
}

// printRule says how a pattern takes part in the independent scan.
type printRule uint8

const (
	printWindows printRule = iota // its windows are told apart by what they hold
	printRun                      // only a run of its windows counts, as below
	printBase64
	printBase32
	printHex
	printDecimal
	printNone // covered by other patterns
)

// runs are how many windows in a row make a hit. An encoded text counts only where
// as much of it is there as of a text of words: a single word in base64, as events
// and manifests have it, is none.
var runs = [...]fingerprint.Run{
	printWindows: fingerprint.Telling, printRun: fingerprint.Plain, printBase64: fingerprint.Base64,
	printBase32: fingerprint.Base32, printHex: fingerprint.Hex, printDecimal: fingerprint.Longest,
}
