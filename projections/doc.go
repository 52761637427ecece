// Package projections holds the read models: one file per model with its table,
// its pure Changes (events → rows), and its typed queries. SQL of read models
// stands here and nowhere else.
//
// The tables are inline: commands write a model's rows in the same append as the
// events, because commands decide on them and callers read their own writes. The
// same Changes functions feed Check, which compares what a fold gives with what
// stands in the tables, and Rebuild, which writes the rows anew where they
// differ. Both pass over events and rows once, in the order of streams, page by
// page, and compare rows by their spelling (spelling.go); where two differ in
// it, the database says whether they differ. A row belongs to one stream and
// holds nothing but what the stream's events say: no clock, no configuration.
//
// results is another matter: it is written behind the feed by package catchup, with
// WriteResult. Check and Rebuild know it beside the inline tables (results_check.go,
// results_rebuild.go), up to the checkpoint of its reader.
//
// A new inline model is one file here, a table in a migration, an entry in Tables, and a
// call in the Changes of its aggregate. runner_liveness and secret_fingerprints are
// no projections; rows of the latter are deleted by the append of a scan's verdict,
// which is all that WrittenTables has beyond Tables.
package projections
