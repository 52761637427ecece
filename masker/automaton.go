package masker

import (
	"math/bits"
	"sync"
	"sync/atomic"
)

// What a pattern is made of decides which insertions and which other spellings of
// a byte it survives, see final in thread.go.
const (
	kindText    = 0
	kindBase64  = 1 << 8  // symbols of base64 or base32
	kindHex     = 1 << 9  // lower case hex digits
	kindDecimal = 1 << 10 // decimal numbers, one space in between
	kindSpace   = 1 << 11 // the secret has white space after this byte
	kinds       = kindBase64 | kindHex | kindDecimal | kindSpace

	inherited  = 4       // kinds of a node or of one of its suffixes: kinds << inherited
	kindGapped = 1 << 16 // a text with white space somewhere
	hasNext    = 1 << 17 // node+1 is a child
	hasMore    = 1 << 18 // there are children in the edge table
	depthShift = 19
	maxPattern = 1<<(32-depthShift) - 1
)

// node is 12 bytes; a big secret has millions.
type node struct {
	fail uint32 // the longest proper suffix that is a node
	out  uint32 // the longest pattern that ends here, as index + 1
	meta uint32 // label, kinds, inherited kinds, flags, depth
}

func (n *node) label() byte { return byte(n.meta) }
func (n *node) depth() int  { return int(n.meta >> depthShift) }

// automaton is an Aho–Corasick automaton over all patterns of a Set. Chains lie in
// a row in memory, only branches need the edge table, so that memory is about 12
// bytes for each byte of a pattern. The trie is immutable once built. The suffix
// links, which cost ten times as much, are made when a scanner first comes by: of
// the millions of nodes of a big secret ordinary text sees the first few thousand.
type automaton struct {
	linking    sync.Mutex
	nodes      []node
	root       [256]uint32
	edges      edgeTable
	beginnings []beginning // of the nodes up to a depth of window, which come first
	patterns   []patternInfo
	secrets    []secretInfo
	filter     bloom       // the normalised first bytes that a pattern may have
	grams      bloom       // the four bytes in a row that these have
	heads      bloom       // the first three bytes of these
	intro      [256]uint8  // how an escape may start with this byte
	class      [256]uint16 // normal, and 256 for what can begin an escape
	special    [256]bool   // bytes for which a plain step is not enough
	turns      [256]bool   // special, and what joins two strings behind the first bytes
	longest    int
}

// patternInfo is what a hit needs to know; the bytes are in the nodes.
type patternInfo struct {
	length int32
	secret int32
	kind   uint32
}

// secretInfo is one secret's public side.
type secretInfo struct {
	name string
	mark []byte
}

// beginning is what the first nodes have beside the others.
type beginning struct {
	parent uint32
	secret int32 // of one pattern that goes through the node
}

type edge struct {
	parent, child uint32
	label         byte
}

// edgeTable is an open-addressing table from node and byte to child. A slot holds
// all three, parent<<36 | label<<28 | child; 0 is a free one.
type edgeTable struct {
	slots []uint64
	mask  uint64
}

const (
	childBits = 28
	childMask = 1<<childBits - 1
)

func newEdgeTable(edges []edge) edgeTable {
	size := uint64(1) << bits.Len(uint(2*len(edges)+1))
	t := edgeTable{slots: make([]uint64, size), mask: size - 1}
	for _, e := range edges {
		key := edgeKey(e.parent, e.label)
		i := edgeSlot(key) & t.mask
		for t.slots[i] != 0 {
			i = (i + 1) & t.mask
		}
		t.slots[i] = key<<childBits | uint64(e.child)
	}
	return t
}

func edgeKey(parent uint32, label byte) uint64 { return uint64(parent)<<8 | uint64(label) }

func edgeSlot(key uint64) uint64 { return (key * 0x9E3779B97F4A7C15) >> 20 }

func (t *edgeTable) get(parent uint32, label byte) uint32 {
	key := edgeKey(parent, label)
	for i := edgeSlot(key) & t.mask; t.slots[i] != 0; i = (i + 1) & t.mask {
		if t.slots[i]>>childBits == key {
			return uint32(t.slots[i] & childMask)
		}
	}
	return 0
}

// edge returns the child of n by b, or 0. The child may not be linked yet.
func (a *automaton) edge(n uint32, b byte) uint32 {
	if n == 0 {
		return a.root[b]
	}
	meta := a.nodes[n].meta
	if meta&hasNext != 0 && byte(atomic.LoadUint32(&a.nodes[n+1].meta)) == b {
		return n + 1
	}
	if meta&hasMore != 0 {
		return a.edges.get(n, b)
	}
	return 0
}

// child is edge for a node n that is linked. The child is linked too.
func (a *automaton) child(n uint32, b byte) uint32 {
	c := a.edge(n, b)
	if c != 0 && atomic.LoadUint32(&a.nodes[c].fail) == unlinked {
		a.linking.Lock()
		a.link(c, n)
		a.linking.Unlock()
	}
	return c
}

// step returns the node of the longest suffix of n+b that begins a pattern.
func (a *automaton) step(n uint32, b byte) uint32 {
	for n != 0 {
		if c := a.child(n, b); c != 0 {
			return c
		}
		n = a.nodes[n].fail
	}
	return a.root[b]
}

// blanks estimates how much white space, which is not in the nodes, a secret has
// before n, a node of the first few bytes.
func (a *automaton) blanks(n uint32) int {
	sum := 0
	for a.nodes[n].depth() > 1 && int(n) < len(a.beginnings) {
		if n = a.beginnings[n].parent; a.nodes[n].meta&kindSpace != 0 {
			sum += 3
		}
	}
	return sum
}

// starts tells whether the first bytes of b may begin a pattern. It follows them in
// the trie up to a byte that can be read in another way, and of that it asks only
// whether one of the readings goes on.
func (a *automaton) starts(b []byte) bool {
	n := uint32(0)
	for i, c := range b[:min(window, len(b))] {
		next := a.edge(n, c)
		switch {
		case !a.special[c]:
		case a.intro[c] != escNone && c != '_' && c != '\n', next != 0 && n != 0:
			return true
		case c >= 'A' && c <= 'F':
			if a.edge(n, c|0x20) != 0 {
				return true
			}
		case n == 0:
			return true
		default:
			return a.goesOn(n, b[i:], window-i)
		}
		if n = next; n == 0 {
			return false
		}
	}
	return true
}

// goesOn tells whether a pattern may go on behind n with b, which begins with a
// separator or with 0 of 0x. It looks at most bytes that are no separators.
func (a *automaton) goesOn(n uint32, b []byte, most int) bool {
	if a.nodes[n].depth() >= 4 && a.nodes[n].meta>>inherited&kindHex != 0 && len(b) > 1 && (b[0] == '\n' || b[1] == ' ') {
		return true // a row of a hex dump may end here
	}
	number := uint32(0) // behind the separator of a decimal number
	for i, c := range b {
		next := a.edge(n, c)
		if a.intro[c] != escNone && c != '_' && c != '\n' || c == '0' && (i+1 == len(b) || b[i+1]|0x20 == 'x') {
			return true
		}
		if normal[c] == anySeparator {
			if next != 0 || c == '-' && a.edge(n, '+') != 0 || c == '_' && a.edge(n, '/') != 0 {
				if c != ' ' {
					return true
				}
			}
			if c == '+' && a.nodes[n].meta>>inherited&kindSpace == 0 {
				return false
			}
			if number == 0 {
				number = a.edge(n, ' ')
			} else if a.edge(number, c) != 0 {
				return true
			}
			continue
		}
		other := a.edge(n, c|0x20)
		if number != 0 && a.edge(number, c) != 0 || next != 0 && other != 0 && next != other {
			return true
		}
		if next == 0 {
			next = other
		}
		if next == 0 {
			return false
		}
		if most--; most == 0 {
			return true
		}
		n, number = next, 0
	}
	return true
}

// open returns the longest suffix of n from which a pattern can go on. What is
// complete is known to be masked and need not be held back.
func (a *automaton) open(n uint32) uint32 {
	for n != 0 && a.nodes[n].meta&(hasNext|hasMore) == 0 {
		n = a.nodes[n].fail
	}
	return n
}

// owner returns the secret of a pattern that n begins.
func (a *automaton) owner(n uint32) int32 {
	if int(n) < len(a.beginnings) {
		return a.beginnings[n].secret
	}
	for atomic.LoadUint32(&a.nodes[n].meta)&hasNext != 0 {
		n++
	}
	return a.patterns[a.nodes[n].out-1].secret
}

// builder grows the trie.
type builder struct {
	a     *automaton
	edges []edge
	more  map[uint64]uint32
}

// buildAutomaton lays the first nodes of all patterns together: all suffix links of
// ordinary text end there, and so they stay in the cache.

func buildAutomaton(patterns []pattern, secrets []secretInfo) *automaton {
	total := 1
	for i := range patterns {
		total += len(patterns[i].text)
	}
	a := &automaton{nodes: make([]node, 1, total), beginnings: make([]beginning, 1), secrets: secrets}
	b := &builder{a: a, more: map[uint64]uint32{}}
	for i := range patterns {
		b.path(&patterns[i], window)
	}
	for i := range patterns {
		b.insert(&patterns[i])
	}
	a.edges = newEdgeTable(b.edges)
	for n := range a.beginnings[1:] {
		a.link(uint32(n+1), a.beginnings[n+1].parent)
	}
	a.buildIntro(patterns)
	a.buildFilter(patterns)
	return a
}

// path makes the nodes of the first bytes of p, depth of them at most.
func (b *builder) path(p *pattern, depth int) uint32 {
	a := b.a
	n, gaps, kind := uint32(0), p.gaps, p.kind
	if len(gaps) > 0 {
		kind |= kindGapped
	}
	for i, c := range p.text[:min(depth, len(p.text))] {
		next := b.find(n, c)
		if next == 0 {
			next = b.grow(n, c, i+1)
			if i < window {
				a.beginnings = append(a.beginnings, beginning{parent: n, secret: p.secret})
			}
		}
		n = next
		a.nodes[n].meta |= kind
		if len(gaps) > 0 && gaps[0] == int32(i) {
			a.nodes[n].meta |= kindSpace
			gaps = gaps[1:]
		}
	}
	return n
}

func (b *builder) insert(p *pattern) {
	a := b.a
	n := b.path(p, len(p.text))
	if a.nodes[n].out == 0 {
		kind := p.kind
		if len(p.gaps) > 0 {
			kind |= kindGapped
		}
		a.patterns = append(a.patterns, patternInfo{length: int32(len(p.text)), secret: p.secret, kind: kind})
		a.nodes[n].out = uint32(len(a.patterns))
		a.longest = max(a.longest, len(p.text))
	}
}

func (b *builder) find(n uint32, c byte) uint32 {
	if n == 0 {
		return b.a.root[c]
	}
	if b.a.nodes[n].meta&hasNext != 0 && b.a.nodes[n+1].label() == c {
		return n + 1
	}
	if b.a.nodes[n].meta&hasMore != 0 {
		return b.more[uint64(n)<<8|uint64(c)]
	}
	return 0
}

func (b *builder) grow(n uint32, c byte, depth int) uint32 {
	a := b.a
	next := uint32(len(a.nodes))
	a.nodes = append(a.nodes, node{fail: unlinked, meta: uint32(c) | uint32(depth)<<depthShift})
	switch {
	case n == 0:
		a.root[c] = next
	case next == n+1:
		a.nodes[n].meta |= hasNext
	default:
		a.nodes[n].meta |= hasMore
		b.more[uint64(n)<<8|uint64(c)] = next
		b.edges = append(b.edges, edge{parent: n, child: next, label: c})
	}
	return next
}

// unlinked is the fail of a node that has none yet.
const unlinked = ^uint32(0)

// link sets fail, out and the inherited kinds of n, a child of parent, which is
// linked. Others may read the label of n meanwhile, and all of it once fail is set.
func (a *automaton) link(n, parent uint32) {
	nd := &a.nodes[n]
	if nd.fail != unlinked {
		return
	}
	fail := uint32(0)
	if parent != 0 {
		for f := a.nodes[parent].fail; ; f = a.nodes[f].fail {
			if c := a.edge(f, nd.label()); c != 0 {
				a.link(c, f)
				fail = c
				break
			}
			if f == 0 {
				break
			}
		}
	}
	f := &a.nodes[fail]
	atomic.StoreUint32(&nd.meta, nd.meta|nd.meta&kinds<<inherited|f.meta&(kinds<<inherited))
	if nd.out == 0 {
		nd.out = f.out
	}
	atomic.StoreUint32(&nd.fail, fail)
}
