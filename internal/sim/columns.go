package sim

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"unicode"
)

// shadows holds, by view, the same struct with the columns' names as JSON tags.
var shadows sync.Map // reflect.Type → reflect.Type

// scan reads a row's columns into a view of package projections, by the rule that
// the product reads them by: the db tag, or the field's name. Fields that are no
// column of the row keep what they have.
func scan[V any](row json.RawMessage, view *V) {
	t := reflect.TypeFor[V]()
	shadow, ok := shadows.Load(t)
	if !ok {
		shadow, _ = shadows.LoadOrStore(t, tagged(t))
	}
	into := reflect.ValueOf(view).Convert(reflect.PointerTo(shadow.(reflect.Type)))
	if err := json.Unmarshal(row, into.Interface()); err != nil {
		panic(fmt.Sprintf("a row cannot be read as %s: %v: %s", t, err, row)) // this process wrote it
	}
}

func tagged(t reflect.Type) reflect.Type {
	fields := make([]reflect.StructField, t.NumField())
	for i := range fields {
		f := t.Field(i)
		column := f.Tag.Get("db")
		if column == "" {
			column = snake(f.Name)
		}
		f.Tag = reflect.StructTag(`json:"` + column + `"`)
		f.Offset, f.Index = 0, nil
		fields[i] = f
	}
	return reflect.StructOf(fields)
}

// snake is a field's name as a column is spelt: AttemptID is attempt_id.
func snake(field string) string {
	var b strings.Builder
	for i, r := range strings.NewReplacer("ID", "Id", "URI", "Uri").Replace(field) {
		if unicode.IsUpper(r) && i > 0 {
			b.WriteByte('_')
		}
		b.WriteRune(unicode.ToLower(r))
	}
	return b.String()
}
