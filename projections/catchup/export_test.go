package catchup

// SelectSQL is the statement that reads a page, for tests that look at its plan.
func SelectSQL(p Projection, page int) (query string, args []any) {
	wants := map[string]bool{}
	for _, name := range p.Wants {
		wants[name] = true
	}
	q := newFeedSchema(wants, page, 50).SelectQuery("feed", p.Name, checkpoints{})
	return q.Query, q.Args
}

// InsertQuery is what the adapter answers a publisher.
func InsertQuery() error {
	_, err := newFeedSchema(nil, 1, 1).InsertQuery("feed", nil)
	return err
}
