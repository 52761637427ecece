package policy

import (
	"bytes"
	"encoding/json"
	"math"
	"strconv"
	"strings"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/cost"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/common/types/traits"
)

// Names of the types that conditions are checked against.
const (
	jobTypeName    = "job"
	targetTypeName = "target"
)

var jobFields = map[string]*types.Type{
	"action":               types.StringType,
	"job_type":             types.StringType,
	"environment":          types.StringType,
	"runner":               types.StringType,
	"isolation":            types.StringType,
	"destructive":          types.BoolType,
	"labels":               types.NewMapType(types.StringType, types.StringType),
	"parameters":           types.NewMapType(types.StringType, types.DynType),
	"targets":              types.NewListType(types.NewObjectType(targetTypeName)),
	"operation_policy_ref": types.StringType,
	"allowed_commands_ref": types.StringType,
	"retry_policy_ref":     types.StringType,
}

var targetFields = map[string]*types.Type{
	"resource_id": types.StringType,
	"host":        types.StringType,
	"port":        types.IntType,
}

// jobTypesProvider makes a misspelt field a mistake of the bundle instead of a
// refusal of every job.
type jobTypesProvider struct{ types.Provider }

func fieldsOf(name string) map[string]*types.Type {
	switch name {
	case jobTypeName:
		return jobFields
	case targetTypeName:
		return targetFields
	}
	return nil
}

func (p jobTypesProvider) FindStructType(name string) (*types.Type, bool) {
	if fieldsOf(name) != nil {
		return types.NewTypeTypeWithParam(types.NewObjectType(name)), true
	}
	return p.Provider.FindStructType(name)
}

func (p jobTypesProvider) FindStructFieldNames(name string) ([]string, bool) {
	if f := fieldsOf(name); f != nil {
		return sortedKeys(f), true
	}
	return p.Provider.FindStructFieldNames(name)
}

func (p jobTypesProvider) FindStructFieldType(name, field string) (*types.FieldType, bool) {
	if f := fieldsOf(name); f != nil {
		t, ok := f[field]
		return &types.FieldType{Type: t}, ok
	}
	return p.Provider.FindStructFieldType(name, field)
}

// notKnownHere is the error of a field that the place of the decision does not
// know. It must not look absent: that could turn a condition round.
const notKnownHere = "not known here"

// jobValue is a whole job.
func jobValue(in Input) ref.Val {
	targets := make([]ref.Val, len(in.Targets))
	for i, t := range in.Targets {
		targets[i] = newOrderedMap(map[string]ref.Val{
			"resource_id": types.String(t.ResourceID), "host": types.String(t.Host), "port": types.Int(t.Port)})
	}
	labels := make(map[string]ref.Val, len(in.Labels))
	for k, v := range in.Labels {
		labels[k] = types.String(v)
	}
	isolation := in.Isolation
	if isolation == "" {
		isolation = "process"
	}
	return newOrderedMap(map[string]ref.Val{
		"action": types.String(in.Action), "job_type": types.String(in.JobType), "environment": types.String(in.Environment),
		"runner": types.String(in.Runner), "isolation": types.String(isolation), "destructive": types.Bool(in.Destructive),
		"labels": newOrderedMap(labels), "parameters": objectValue(in.Parameters),
		"targets":              types.NewRefValList(types.DefaultTypeAdapter, targets),
		"operation_policy_ref": types.String(in.OperationPolicyRef), "allowed_commands_ref": types.String(in.AllowedCommandsRef),
		"retry_policy_ref": types.String(in.RetryPolicyRef),
	})
}

// partialJob is what is known of a job where only some fields are given: to look
// at another is an error.
func partialJob(known map[string]string) ref.Val {
	fields := make(map[string]ref.Val, len(jobFields))
	for name := range jobFields {
		fields[name] = types.NewErr(notKnownHere)
	}
	for name, v := range known {
		fields[name] = types.String(v)
	}
	return newOrderedMap(fields)
}

// objectValue is the value of a JSON object, an empty one for what is none.
func objectValue(raw json.RawMessage) ref.Val {
	v, ok := decodeJSON(raw).(map[string]any)
	if !ok {
		v = nil
	}
	return plainValue(v)
}

// decodeJSON keeps numbers as they are written; nil for no JSON.
func decodeJSON(raw json.RawMessage) any {
	var v any
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	if d.Decode(&v) != nil {
		return nil
	}
	return v
}

// plainValue turns what JSON and YAML know into values of CEL: whole numbers that
// fit are int, others double.
func plainValue(v any) ref.Val {
	switch v := v.(type) {
	case nil:
		return types.NullValue
	case bool:
		return types.Bool(v)
	case string:
		return types.String(v)
	case json.Number:
		return numberValue(string(v))
	case int:
		return types.Int(v)
	case int64:
		return types.Int(v)
	case float64:
		if v == math.Trunc(v) && math.Abs(v) < 1<<53 {
			return types.Int(v)
		}
		return types.Double(v)
	case []any:
		out := make([]ref.Val, len(v))
		for i, item := range v {
			out[i] = plainValue(item)
		}
		return types.NewRefValList(types.DefaultTypeAdapter, out)
	case map[string]any:
		out := make(map[string]ref.Val, len(v))
		for k, item := range v {
			out[k] = plainValue(item)
		}
		return newOrderedMap(out)
	}
	return types.DefaultTypeAdapter.NativeToValue(v)
}

func numberValue(s string) ref.Val {
	if i, err := strconv.ParseInt(s, 10, 64); err == nil {
		return types.Int(i)
	}
	f, err := strconv.ParseFloat(s, 64)
	if err != nil {
		return types.NullValue // beyond the range of a number
	}
	return types.Double(f)
}

// orderedMap is gone through in order of its keys. CEL's own maps are gone
// through in Go's order, which changes from one run to the next: what an
// expression gives or costs must not.
type orderedMap struct {
	traits.Mapper
	values map[string]ref.Val
	keys   []string
}

func newOrderedMap(values map[string]ref.Val) orderedMap {
	return orderedMap{Mapper: types.NewMap(types.DefaultTypeAdapter, values), values: values, keys: sortedKeys(values)}
}

// Iterator gives the keys in order.
func (m orderedMap) Iterator() traits.Iterator {
	return types.NewStringList(types.DefaultTypeAdapter, m.keys).Iterator()
}

// Fold goes through the entries in order.
func (m orderedMap) Fold(f traits.Folder) {
	for _, k := range m.keys {
		if !f.FoldEntry(types.String(k), m.values[k]) {
			return
		}
	}
}

// walksWrittenMap finds an expression that may go through a map which it writes
// itself. That is told by type, so it is stricter than it must be.
func walksWrittenMap(checked *cel.Ast) bool {
	native := checked.NativeRep()
	written, walked := false, false
	ast.PostOrderVisit(native.Expr(), ast.NewExprVisitor(func(e ast.Expr) {
		switch e.Kind() {
		case ast.MapKind:
			written = true
		case ast.ComprehensionKind:
			switch native.GetType(e.AsComprehension().IterRange().ID()).Kind() {
			case types.MapKind, types.DynKind, types.AnyKind:
				walked = true
			}
		}
	}))
	return written && walked
}

// sizes says how large the things that expressions look at are at most in a job
// of the usual size; the cost limit holds for larger ones.
type sizes struct{}

// EstimateCallCost leaves all functions to CEL.
func (sizes) EstimateCallCost(string, string, *cost.AstNode, []cost.AstNode) *cost.CallEstimate {
	return nil
}

// EstimateSize knows the variables.
func (sizes) EstimateSize(n cost.AstNode) *cost.SizeEstimate {
	path := n.Path()
	if len(path) == 0 {
		return nil
	}
	most := uint64(200)
	switch strings.Join(path, ".") {
	case "job.targets":
		most = 100
	case "job.labels":
		most = 64
	case "job.action", "job.job_type", "job.environment", "job.runner", "job.isolation", "job.targets.@items.host", "job.targets.@items.resource_id":
		most = 64
	}
	return &cost.SizeEstimate{Min: 0, Max: most}
}
