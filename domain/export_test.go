package domain

// ReadPlainly reads a payload the short way, if it can be gone.
func ReadPlainly(name string, payload []byte) (Event, bool) { return registry[name].plain(payload) }
