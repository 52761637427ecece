package policy

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/env"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/ext"
)

// Bounds of an expression. An evaluation that reaches one of them ends in an
// error, and an error never allows anything. They are part of what a verdict
// means: raising one is safe, lowering one is not.
const (
	maxExpression   = 4096      // bytes of text
	maxNodes        = 1000      // of the parsed expression
	maxCost         = 100_000   // of a condition's evaluation; about 10 ms
	maxAssertCost   = 1_000_000 // of an assertion's, which may look at a whole output
	maxRegexProgram = 1000
)

// expression is a CEL expression that gives true or false, compiled when the
// bundle is loaded.
type expression struct {
	text    string
	program cel.Program
	cost    uint64 // the most that an evaluation may cost
}

// expressionError is a mistake in an expression; line and column are inside of
// its text, from 1.
type expressionError struct {
	line, column int
	text         string
}

func (e *expressionError) Error() string {
	if e.line == 0 {
		return e.text
	}
	if e.line == 1 {
		return fmt.Sprintf("column %d: %s", e.column, e.text)
	}
	return fmt.Sprintf("line %d, column %d: %s", e.line, e.column, e.text)
}

// The parts of the standard library that read the machine: a time zone's rules
// are a file that differs from one machine to the next.
var excluded = []string{"timestamp", "getDate", "getDayOfMonth", "getDayOfWeek", "getDayOfYear",
	"getFullYear", "getHours", "getMilliseconds", "getMinutes", "getMonth", "getSeconds"}

// newEnvironment gives the language of the conditions, with the variables that
// declare names. The versions of the libraries are fixed, so that a newer build
// understands an old bundle as it was.
func newEnvironment(declare ...cel.EnvOption) *cel.Env {
	subset := env.NewLibrarySubset()
	for _, name := range excluded {
		subset.AddExcludedFunctions(env.NewFunction(name))
	}
	options := append([]cel.EnvOption{
		cel.StdLib(cel.StdLibSubset(subset)),
		ext.Strings(ext.StringsVersion(4), ext.StringsMaxPrecision(20)),
		ext.Lists(ext.ListsVersion(3), ext.ListsMaxRangeSize(1000)),
		cel.ParserExpressionSizeLimit(maxExpression),
		cel.ParserRecursionLimit(50),
		cel.ExpressionNodeLimit(maxNodes),
		cel.ExpressionNestingDepthLimit(50),
		cel.RegexProgramSizeLimit(maxRegexProgram),
	}, declare...)
	e, err := cel.NewCustomEnv(options...)
	if err != nil {
		panic("policy: the language of conditions: " + err.Error())
	}
	return e
}

// jobEnvironment is that of `when`: the one variable job.
var jobEnvironment = sync.OnceValue(func() *cel.Env {
	registry, err := types.NewRegistry()
	if err != nil {
		panic("policy: the types of conditions: " + err.Error())
	}
	return newEnvironment(
		cel.CustomTypeAdapter(registry),
		cel.CustomTypeProvider(jobTypesProvider{registry}),
		cel.Variable("job", types.NewObjectType(jobTypeName)))
})

// sampleEnvironment is that of a probe's `assert`.
var sampleEnvironment = sync.OnceValue(func() *cel.Env {
	return newEnvironment(
		cel.Variable("sample", cel.MapType(cel.StringType, cel.DynType)),
		cel.Variable("parameters", cel.MapType(cel.StringType, cel.DynType)))
})

// compile gives the expression or all its mistakes.
func compile(e *cel.Env, text string, cost uint64) (*expression, []error) {
	if len(text) > maxExpression {
		return nil, []error{fmt.Errorf("it has more than %d characters", maxExpression)}
	}
	ast, issues := e.Compile(text)
	if issues != nil && issues.Err() != nil {
		var out []error
		for _, i := range issues.Errors() {
			at := &expressionError{text: oneLine(i.Message)}
			if i.Location != nil {
				at.line, at.column = i.Location.Line(), i.Location.Column()+1
			}
			out = append(out, at)
		}
		return nil, out
	}
	if out := ast.OutputType(); out.Kind() != types.BoolKind {
		return nil, []error{fmt.Errorf("it gives %s, and must give true or false", out)}
	}
	estimate, err := e.EstimateCost(ast, sizes{})
	if err != nil {
		return nil, []error{fmt.Errorf("its cost cannot be estimated: %s", oneLine(err.Error()))}
	}
	// The estimate knows no bound where sizes cannot be told beforehand; the limit of
	// the evaluation holds there.
	if estimate.Max > cost && estimate.Max != math.MaxUint64 {
		return nil, []error{fmt.Errorf("it is too expensive: it may cost %d steps, at most %d: look at fewer things, or not at each for each", estimate.Max, cost)}
	}
	if walksWrittenMap(ast) {
		return nil, []error{errors.New("it goes through a map, and a map is written in it, whose order is not fixed: write a list")}
	}
	program, err := e.Program(ast, cel.EvalOptions(cel.OptOptimize), cel.CostLimit(cost))
	if err != nil {
		return nil, []error{errors.New(oneLine(err.Error()))}
	}
	return &expression{text: text, program: program, cost: cost}, nil
}

func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }

// holds evaluates. An error says why in words that hold nothing of the job's
// values.
func (x *expression) holds(variables map[string]any) (bool, error) {
	out, _, err := x.program.Eval(variables)
	if err != nil {
		return false, x.evaluationError(err)
	}
	yes, ok := out.(types.Bool)
	if !ok {
		return false, errors.New("it gave neither true nor false")
	}
	return bool(yes), nil
}

// evaluationError puts what CEL says into words of our own: its text may repeat
// a value of the job.
func (x *expression) evaluationError(err error) error {
	text := err.Error()
	switch {
	case strings.Contains(text, "cost limit"), strings.Contains(text, "cost exceeded"):
		return fmt.Errorf("it costs more than %d steps", x.cost)
	case strings.Contains(text, notKnownHere):
		return errors.New("it looks at something of the job that is not known where this is decided")
	case strings.Contains(text, "no such key"), strings.Contains(text, "no such attribute"):
		return errors.New("it looks at something that the job does not have: ask with has() or in first")
	case strings.Contains(text, "index out of bounds"):
		return errors.New("it looks beyond the end of a list")
	case strings.Contains(text, "no such overload"):
		return errors.New("something of the job is of another type than it expects")
	}
	return errors.New("it could not be evaluated")
}

// meets evaluates a condition over a job. No condition holds always.
func (x *expression) meets(job ref.Val) (bool, error) {
	if x == nil {
		return true, nil
	}
	return x.holds(map[string]any{"job": job})
}
