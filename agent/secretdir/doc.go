// Package secretdir keeps files that must never reach a disk: the secrets of an
// attempt, what its executor makes of them, and messages that wait. They lie on a
// memory file system, below one folder of this agent's own:
//
//	<base>/execution-plane-<name>/      the agent's, named by its state folder
//	    <attempt>/                      the agent's; others pass through
//	        secrets/                    the executor's, 0700; its files are 0400
//	        output/                     the executor's, 0700
//	        messages/                   the agent's, 0700
//
// The base is $XDG_RUNTIME_DIR, else /dev/shm; it is checked, not trusted. Values
// are held in memory where the kernel lets them be (mlock), since a memory file
// system may be swapped out. What is removed is overwritten first.
//
// What may be touched: nothing here knows Vault, the service or the masker. Every
// path below a folder that an executor owns is opened through os.Root.
package secretdir
