package masker

import (
	"encoding/hex"

	"github.com/platform-core/execution-plane-service/masker/fingerprint"
)

// MostPrints is how many prints a Set has at most, 4 MiB of them.
const MostPrints = 1 << 19

const (
	// printShare is the part of the prints that are left, as 1/printShare, which one
	// secret may take. So those that are added later have some too.
	printShare = 4
	// placeSize is the length in bytes of a piece of a thinned secret.
	placeSize = 16
)

// Coverage tells how much of the secrets their prints cover.
type Coverage struct {
	// Share is how many prints there are of those that there would be without
	// MostPrints: 1 unless a secret is very long.
	Share float64
	// Certain is the length in bytes of the shortest leak that a Scanner finds
	// wherever it begins, in plain text, base64 or hex; a value that is shorter is
	// found as a whole. Weak values, which have no prints, do not count. 0 says that
	// some other secret has no print at all.
	Certain int
}

// printPlan says how one secret is printed. It is settled when the secret is added,
// so that more secrets only add prints.
type printPlan struct {
	patterns []pattern
	texts    [][]byte // the parts that have no parts
	stride   int      // from one place that is printed to the next, 0 for all windows
}

// printBudget shares MostPrints out.
type printBudget struct {
	left           int
	windows, taken int
	longest        int // stride of all plans
	missing        bool
	plans          []printPlan
}

// plan settles how the secret with these parts and patterns is printed.
func (b *printBudget) plan(parts []part, patterns []pattern) {
	p := printPlan{patterns: patterns}
	windows, total := 0, 0
	for i := range patterns {
		if patterns[i].print != printNone {
			windows += fingerprint.Windows(patterns[i].text) + fingerprint.Windows(patterns[i].raw)
		}
	}
	for _, t := range parts {
		if t.print != printNone {
			p.texts = append(p.texts, t.value)
			total += len(t.value)
		}
	}
	b.windows += windows
	allowed := b.left / printShare
	cost := windows
	if windows > allowed {
		p.stride = max(placeSize, total/(allowed+1))
		for cost = p.cost(); cost > allowed && p.stride <= total; cost = p.cost() {
			p.stride += p.stride/8 + 1
		}
		if cost > allowed {
			b.missing = true
			return
		}
	}
	b.left -= cost
	b.taken += cost
	b.longest = max(b.longest, p.stride)
	b.plans = append(b.plans, p)
}

// places calls do with the piece of a text at every stride-th byte, in plain text
// and in the encodings that have prints.
func (p *printPlan) places(do func(text []byte, run fingerprint.Run)) {
	next := 0 // the next place, from the start of the text at hand
	for _, t := range p.texts {
		for ; next < len(t); next += p.stride {
			from := max(0, min(next, len(t)-placeSize))
			piece := fingerprint.TellingPart(t[from:min(from+placeSize, len(t))])
			do(piece, fingerprint.Telling)
			for _, s := range base64Stems(piece, fingerprint.Window) {
				do(s, fingerprint.Longest)
				clear(s)
			}
			digits := hex.AppendEncode(nil, piece)
			do(digits, fingerprint.Longest)
			clear(digits)
		}
		next -= len(t)
	}
}

func (p *printPlan) cost() int {
	n := 0
	p.places(func(text []byte, _ fingerprint.Run) { n += fingerprint.Windows(text) })
	return n
}

// Fingerprints returns keyed hashes of what the patterns are made of, sorted, for a
// fingerprint.Scanner with the same key: MostPrints at most. Secrets that are added
// later add prints and take none away. Above a quarter of the prints that are left,
// a secret is not printed window by window but at places at the same distance from
// each other; Coverage tells what that means.
func (s *Set) Fingerprints(key [32]byte) []uint64 {
	h := s.shared
	if h == nil {
		return nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	to := fingerprint.NewPrinter(key)
	for i := range h.prints.plans {
		p := &h.prints.plans[i]
		if p.stride > 0 {
			p.places(to.Add)
			continue
		}
		for k := range p.patterns {
			if rule := p.patterns[k].print; rule != printNone {
				to.Add(p.patterns[k].text, runs[rule])
				to.Add(p.patterns[k].raw, runs[rule])
			}
		}
	}
	return to.Prints()
}

// Coverage tells how much of the secrets Fingerprints covers.
func (s *Set) Coverage() Coverage {
	c := Coverage{Share: 1, Certain: fingerprint.LongestRun}
	h := s.shared
	if h == nil {
		return c
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	b := &h.prints
	if b.taken < b.windows {
		c.Share = float64(b.taken) / float64(b.windows)
	}
	switch {
	case b.missing:
		c.Certain = 0
	case b.longest > 0:
		c.Certain = b.longest + 2*placeSize - 1
	}
	return c
}
