package masker

// pattern is one byte string to look for.
type pattern struct {
	text   []byte
	gaps   []int32 // indexes after which the secret has white space
	kind   uint32
	secret int32
	print  printRule
}

// printRule says how a pattern takes part in the independent scan.
type printRule uint8

const (
	printWindows printRule = iota // its windows are told apart by what they hold
	printRun                      // only a run of its windows counts
	printNone                     // covered by other patterns
)
