package masker

import "math/bits"

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

// automaton is an Aho–Corasick automaton over all patterns of a Set, immutable
// once built. Chains lie in a row in memory, only branches need the edge table, so
// that memory is about 12 bytes for each byte of a pattern.
type automaton struct {
	nodes    []node
	root     [256]uint32
	edges    edgeTable
	patterns []patternInfo
	secrets  []secretInfo
	filter   bloom       // the normalised first bytes that a pattern may have
	intro    [256]uint8  // how an escape may start with this byte
	class    [256]uint16 // normal, and 256 for what can begin an escape
	special  [256]bool   // bytes for which a plain step is not enough
	longest  int
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

type edge struct {
	parent, child uint32
	label         byte
}

// edgeTable is an open-addressing table from node and byte to child.
type edgeTable struct {
	keys []uint64 // parent<<8 | label, plus 1; 0 is a free slot
	vals []uint32
	mask uint64
}

func newEdgeTable(edges []edge) edgeTable {
	size := uint64(1) << bits.Len(uint(2*len(edges)+1))
	t := edgeTable{keys: make([]uint64, size), vals: make([]uint32, size), mask: size - 1}
	for _, e := range edges {
		t.put(e.parent, e.label, e.child)
	}
	return t
}

func edgeSlot(key uint64) uint64 { return (key * 0x9E3779B97F4A7C15) >> 20 }

func (t *edgeTable) put(parent uint32, label byte, child uint32) {
	key := uint64(parent)<<8 | uint64(label) + 1
	i := edgeSlot(key) & t.mask
	for t.keys[i] != 0 {
		i = (i + 1) & t.mask
	}
	t.keys[i], t.vals[i] = key, child
}

func (t *edgeTable) get(parent uint32, label byte) uint32 {
	key := uint64(parent)<<8 | uint64(label) + 1
	for i := edgeSlot(key) & t.mask; t.keys[i] != 0; i = (i + 1) & t.mask {
		if t.keys[i] == key {
			return t.vals[i]
		}
	}
	return 0
}

// child returns the child of n by b, or 0.
func (a *automaton) child(n uint32, b byte) uint32 {
	if n == 0 {
		return a.root[b]
	}
	meta := a.nodes[n].meta
	if meta&hasNext != 0 && a.nodes[n+1].label() == b {
		return n + 1
	}
	if meta&hasMore != 0 {
		return a.edges.get(n, b)
	}
	return 0
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
// within the last few bytes before n.
func (a *automaton) blanks(n uint32) int {
	sum := 0
	for range cutPrefix {
		if a.nodes[n].depth() <= 1 || a.nodes[n-1].depth() != a.nodes[n].depth()-1 {
			break
		}
		if n--; a.nodes[n].meta&kindSpace != 0 {
			sum += 3
		}
	}
	return sum
}

// starts tells whether b may be the first bytes of a pattern: it is no when b
// leaves the trie before a byte that can be read in another way.
func (a *automaton) starts(b []byte) bool {
	n := uint32(0)
	for _, c := range b {
		if a.special[c] {
			return true
		}
		if n = a.child(n, c); n == 0 {
			return false
		}
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
	for a.nodes[n].meta&hasNext != 0 {
		n++
	}
	return a.patterns[a.nodes[n].out-1].secret
}

// builder grows the trie.
type builder struct {
	a       *automaton
	edges   []edge
	more    map[uint64]uint32
	parents map[uint32]uint32 // of nodes that do not lie behind their parent
}

func buildAutomaton(patterns []pattern, secrets []secretInfo) *automaton {
	total := 1
	for i := range patterns {
		total += len(patterns[i].text)
	}
	a := &automaton{nodes: make([]node, 1, total), secrets: secrets}
	b := &builder{a: a, more: map[uint64]uint32{}, parents: map[uint32]uint32{}}
	for i := range patterns {
		b.insert(&patterns[i])
	}
	a.edges = newEdgeTable(b.edges)
	b.link()
	a.buildIntro(patterns)
	a.buildFilter(patterns)
	return a
}

func (b *builder) insert(p *pattern) {
	a := b.a
	n, gaps, kind := uint32(0), p.gaps, p.kind
	if len(gaps) > 0 {
		kind |= kindGapped
	}
	for i, c := range p.text {
		next := b.find(n, c)
		if next == 0 {
			next = b.grow(n, c, i+1)
		}
		n = next
		a.nodes[n].meta |= kind
		if len(gaps) > 0 && gaps[0] == int32(i) {
			a.nodes[n].meta |= kindSpace
			gaps = gaps[1:]
		}
	}
	if a.nodes[n].out == 0 {
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
	a.nodes = append(a.nodes, node{meta: uint32(c) | uint32(depth)<<depthShift})
	switch {
	case n == 0:
		a.root[c] = next
	case next == n+1:
		a.nodes[n].meta |= hasNext
	default:
		a.nodes[n].meta |= hasMore
		b.more[uint64(n)<<8|uint64(c)] = next
		b.parents[next] = n
		b.edges = append(b.edges, edge{parent: n, child: next, label: c})
	}
	return next
}

// unlinked is the fail of a node that has none yet.
const unlinked = ^uint32(0)

// link sets fail, out and the inherited kinds. It goes through the nodes as they lie
// in memory, since a big secret has millions, and sees to the few that it needs
// earlier on the way.
func (b *builder) link() {
	nodes := b.a.nodes
	for n := range nodes[1:] {
		nodes[n+1].fail = unlinked
	}
	for n := range nodes[1:] {
		b.ensure(uint32(n + 1))
	}
}

// ensure links n and what it depends on.
func (b *builder) ensure(n uint32) {
	nodes := b.a.nodes
	if nodes[n].fail != unlinked {
		return
	}
	if nodes[n].depth() == 1 {
		b.a.inherit(n, 0)
		return
	}
	parent := n - 1
	if nodes[parent].meta&hasNext == 0 || parent == 0 {
		parent = b.parents[n]
	}
	b.ensure(parent)
	f, label := nodes[parent].fail, nodes[n].label()
	for {
		if c := b.a.child(f, label); c != 0 {
			b.ensure(c)
			b.a.inherit(n, c)
			return
		}
		if f == 0 {
			b.a.inherit(n, 0)
			return
		}
		b.ensure(f)
		f = nodes[f].fail
	}
}

func (a *automaton) inherit(n, fail uint32) {
	nd, f := &a.nodes[n], &a.nodes[fail]
	nd.fail = fail
	nd.meta |= nd.meta&kinds<<inherited | f.meta&(kinds<<inherited)
	if nd.out == 0 {
		nd.out = f.out
	}
}
