package plane

import (
	"testing"

	"github.com/platform-core/execution-plane-service/callbacks"
)

func TestHealthNamesWhatIsWrongWithCallbacks(t *testing.T) {
	at := func(name string, change func(*callbacks.EndpointStatus)) callbacks.EndpointStatus {
		e := callbacks.EndpointStatus{Endpoint: callbacks.Endpoint{Name: name}, Configured: true}
		change(&e)
		return e
	}
	well := at("well", func(e *callbacks.EndpointStatus) { e.Pending, e.FailuresInRow, e.LastError = 9, 1, "status" })
	for want, s := range map[string]callbacks.Status{
		"":                             {Endpoints: []callbacks.EndpointStatus{well}},
		"new results get no callbacks": {Trouble: "the database is away", Endpoints: []callbacks.EndpointStatus{well}},
		"endpoints are stopped or have callbacks that were given up: gone, full; callbacks wait for endpoints that are not configured: old; secret files cannot be read again: bare": {
			Endpoints: []callbacks.EndpointStatus{
				at("gone", func(e *callbacks.EndpointStatus) { e.Stopped = "gone" }), at("full", func(e *callbacks.EndpointStatus) { e.Exhausted = 1 }), well,
				at("old", func(e *callbacks.EndpointStatus) { e.Configured, e.Pending = false, 1 }), at("bare", func(e *callbacks.EndpointStatus) { e.SecretProblem = "x" }),
			},
		},
	} {
		if got := callbackTrouble(s); got != want {
			t.Errorf("%+v\n gives %q\nwant  %q", s, got, want)
		}
	}
}
