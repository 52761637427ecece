// Package reader reads the execution plane's topics as one member of a consumer
// group, and hands each event that is new to a function. What it promises:
//
//   - At least once: an offset is committed only after the function returned nil for
//     the record, and after what the check remembers is on the disk. A crash in
//     between brings records again; the check drops those that were handled, so the
//     function sees one again only if the crash came before its state was written.
//   - In order: the records of one stream in one topic come in the order of their
//     versions, one at a time. Different partitions come at the same time.
//   - Nothing is skipped in silence: every finding of the check is handed on, with
//     its record or alone.
package reader
