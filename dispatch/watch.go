package dispatch

import "github.com/platform-core/execution-plane-service/domain"

// WatchLog returns a channel that brings a wake after log of the attempt was
// stored, or it ended, at any replica. It holds one wake, so none is lost between
// looking and waiting; a wake is a hint. The caller ends the watch.
func (d *Dispatcher) WatchLog(id domain.AttemptID) (woken <-chan struct{}, end func()) {
	sub := d.hub.subscribe("log/" + id.String())
	return sub.c, sub.end
}
