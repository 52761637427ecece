package forwarder

import (
	"testing"
	"time"
)

// Records go one by one only where batches are refused for no single record: a key
// that is parked must not slow down the others of its topic.
func TestRefusedRecordLeavesTheOthersTogether(t *testing.T) {
	f := &Forwarder{}
	f.counts.init()
	innocent := &item{topic: "t"}
	f.published(innocent, true)
	if !f.alone("t") || f.alone("other") {
		t.Error("a topic whose batches are refused, though each record fits, does not get them one by one")
	}
	f.refusedOne("t")
	if f.alone("t") {
		t.Error("the record to blame is found, and the others still go one by one")
	}
	f.published(innocent, true) // of the same batch, after the one to blame
	if f.alone("t") {
		t.Error("one of the same batch makes the others go one by one again")
	}
	f.counts.blamed["t"] = time.Now().Add(-2 * blameFor)
	f.published(innocent, true)
	if !f.alone("t") {
		t.Error("a record that was refused long ago explains a batch of now")
	}
}
