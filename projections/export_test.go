package projections

import "context"

// RebuildBy is Rebuild in pieces of about so many rows and pages of so many events.
var RebuildBy = rebuildBy

// Spellings gives, by table, how the rows that the events give are spelled and how
// those that are there are; "" where one has no spelling.
func Spellings(ctx context.Context, s Snapshot) (want, got map[string][]string, err error) {
	want, got = map[string][]string{}, map[string][]string{}
	c, err := s.Compare(ctx, Tables(), "")
	if err != nil {
		return nil, nil, err
	}
	err = s.Walk(ctx, "", 100000, func(p Page) error {
		var f *StreamFold
		for i, e := range p.Events {
			if i == 0 || p.Events[i-1].Stream != e.Stream {
				if f, err = NewStreamFold(e.Stream); err != nil {
					return err
				}
			}
			if err := f.Add(e); err != nil {
				return err
			}
			if i+1 == len(p.Events) || p.Events[i+1].Stream != e.Stream {
				c.Add(e.Stream, f)
			}
		}
		for _, t := range c.tables {
			for _, w := range t.want {
				want[t.Name] = append(want[t.Name], w.spelling)
			}
			rows, err := c.fetch(ctx, t, p)
			if err != nil {
				return err
			}
			for _, g := range rows {
				got[t.Name] = append(got[t.Name], g.spelling)
			}
		}
		return nil
	})
	return want, got, err
}
