package sshaccess

// Private says that the key has a private half, which Agent can lend to a tool;
// otherwise it is a password.
func (k Key) Private() bool { return k.raw != nil }
