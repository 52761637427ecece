package masker

import (
	"bytes"
	"regexp"
	"strconv"
)

var (
	envLine  = regexp.MustCompile(`^\s*(?:export\s+)?([A-Za-z_][A-Za-z0-9_.-]*)\s*[=]\s*([^=\s].*)?$`)
	yamlKey  = regexp.MustCompile(`^(\s*(?:- +)*)("[^"]+"|'[^']+'|[A-Za-z0-9_./$-][A-Za-z0-9_./$ -]*?)\s*:(?:[ \t]+(.*))?$`)
	yamlItem = regexp.MustCompile(`^(\s*(?:- +)*- +)(.+)$`)
	yamlText = regexp.MustCompile(`^(?:![^ ]+ +)?([|>])[-+0-9]*\s*(?:#.*)?$`)
)

// env takes the values of a text in which every line is KEY=value, a comment or a
// section. It returns false when the text is something else.
func (s *splitter) env(what string, v []byte, depth int) bool {
	type pair struct {
		key   string
		value []byte
		line  int
	}
	var pairs []pair
	quote := byte(0) // a quoted value goes on over lines
	for i, line := range bytes.Split(v, []byte("\n")) {
		t := trimBlank(line)
		if quote != 0 {
			last := &pairs[len(pairs)-1]
			last.value = append(append(bytes.Clone(last.value), '\n'), bytes.TrimRight(line, "\r")...)
			if bytes.HasSuffix(t, []byte{quote}) {
				quote = 0
			}
			continue
		}
		if len(t) == 0 || t[0] == '#' || t[0] == ';' || t[0] == '[' && t[len(t)-1] == ']' {
			continue
		}
		m := envLine.FindSubmatch(line)
		if m == nil {
			return false
		}
		value := trimBlank(m[2])
		if len(value) > 0 && (value[0] == '"' || value[0] == '\'') && (len(value) == 1 || value[len(value)-1] != value[0]) {
			quote = value[0]
		}
		pairs = append(pairs, pair{key: string(m[1]), value: value, line: i + 1})
	}
	if quote != 0 || len(pairs) == 0 || len(pairs) == 1 && len(pairs[0].value) < shortest {
		return false
	}
	for _, p := range pairs {
		if len(p.value) > 0 {
			name := p.key + " on line " + strconv.Itoa(p.line)
			s.field(join(what, name), p.key, unquote(p.value), depth)
		}
	}
	return true
}

// unquote takes the quotes of YAML and of shells from a value.
func unquote(v []byte) []byte {
	if len(v) < 2 || v[0] != v[len(v)-1] {
		return v
	}
	inner := v[1 : len(v)-1]
	switch v[0] {
	case '"':
		if plain := unescape(inner); plain != nil {
			return plain
		}
		return inner
	case '\'':
		return bytes.ReplaceAll(inner, []byte("''"), []byte("'"))
	}
	return v
}

// yamlField is a key with its value, as far as lines tell.
type yamlField struct {
	key   string
	value []byte
	line  int
}

// yaml takes the values of a text in which every line is key: value, an item, a
// comment or a part of a block. It reads lines only: flow collections, anchors and
// folded plain values stay in one piece.
func (s *splitter) yaml(what string, v []byte, depth int) bool {
	fields, ok := yamlFields(bytes.Split(v, []byte("\n")))
	if !ok {
		return false
	}
	for _, f := range fields {
		if len(f.value) > 0 {
			name := f.key + " on line " + strconv.Itoa(f.line)
			s.field(join(what, name), f.key, unquote(f.value), depth)
		}
	}
	return true
}

func yamlFields(lines [][]byte) ([]yamlField, bool) {
	var fields []yamlField
	key, keys := "", 0
	for i := 0; i < len(lines); i++ {
		line := bytes.TrimRight(lines[i], " \t\r")
		t := trimBlank(line)
		if len(t) == 0 || t[0] == '#' || bytes.Equal(t, []byte("---")) || bytes.Equal(t, []byte("...")) {
			continue
		}
		var value []byte
		if m := yamlKey.FindSubmatch(line); m != nil {
			key, value = string(unquote(m[2])), m[3]
			keys++
		} else if m := yamlItem.FindSubmatch(line); m != nil {
			value = m[2]
		} else if n := len(fields); n > 0 && indent(line) > 0 && keys > 0 {
			// A plain value that goes on.
			last := &fields[n-1]
			last.value = append(append(bytes.Clone(last.value), ' '), t...)
			continue
		} else {
			return nil, false
		}
		f := yamlField{key: key, value: comment(value), line: i + 1}
		if yamlText.Match(value) {
			f.value, i = yamlBlock(lines, i)
		}
		fields = append(fields, f)
	}
	return fields, keys > 0
}

// yamlBlock returns the text under the line at i and the last line of it.
func yamlBlock(lines [][]byte, i int) ([]byte, int) {
	outer, inner := indent(lines[i]), -1
	var text []byte
	for i+1 < len(lines) {
		next := bytes.TrimRight(lines[i+1], "\r")
		if len(trimBlank(next)) > 0 {
			if indent(next) <= outer {
				break
			}
			if inner < 0 {
				inner = indent(next)
			}
		}
		text = append(append(text, next[min(max(inner, 0), len(next)):]...), '\n')
		i++
	}
	return text, i
}

func indent(line []byte) int { return len(line) - len(bytes.TrimLeft(line, " \t")) }

// comment takes the comment from a value that is not quoted.
func comment(v []byte) []byte {
	v = trimBlank(v)
	if len(v) > 0 && v[0] != '"' && v[0] != '\'' {
		if i := bytes.Index(v, []byte(" #")); i >= 0 {
			v = trimBlank(v[:i])
		}
	}
	return v
}
