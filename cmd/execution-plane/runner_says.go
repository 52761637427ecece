package main

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/platform-core/execution-plane-service/api/client"
	"github.com/platform-core/execution-plane-service/domain"
)

// lastWords bounds how much of the end of the events log is read.
const lastWords = 64 << 10

// printRunnerSays prints what the runner wrote of the end into the attempt's events
// log, if it wrote something. It is the runner's own word and stands in no result: the
// summary above it is the service's. What cannot be read is left out; the verb has
// said what it was asked for already.
func printRunnerSays(s *session, api *client.Client, id domain.AttemptID, r domain.ExecutionResult) {
	bytesStored := eventsLog(r)
	if bytesStored == 0 {
		return // nothing ran, or nothing of it came
	}
	part, err := api.Log(s.ctx, id, "events", max(0, bytesStored-lastWords), lastWords)
	if err != nil {
		return
	}
	if said := runnerSays(part.Data); said != "" {
		fmt.Fprintf(s.out, "  the runner says: %s\n", printable(said))
	}
}

// runnerSays finds the text of the end among the lines of an events log.
func runnerSays(log []byte) (said string) {
	for line := range bytes.Lines(log) {
		var e struct {
			Event   string `json:"event"`
			Message string `json:"message"`
			Text    string `json:"text"`
		}
		if json.Unmarshal(line, &e) != nil {
			continue // the first one may be cut
		}
		switch {
		case e.Event == "executor_outcome" && e.Message != "":
			said = e.Message
		case e.Event == "ended" && said == "":
			said = e.Text
		}
	}
	return said
}

// eventsLog is how many bytes of the events log the result of a failure names.
func eventsLog(r domain.ExecutionResult) int64 {
	if r.Status == domain.StatusSucceeded {
		return 0 // there is nothing to explain
	}
	for _, l := range r.RawLogs {
		if l.Stream == "events" {
			return l.Bytes
		}
	}
	return 0
}
