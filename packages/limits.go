package packages

// Limits bound what a package may take. Each must be above 0.
type Limits struct {
	Compressed int64 // bytes of the file
	// Size is of the decompressed tar: all files, with headers and padding.
	Size    int64
	File    int64 // bytes of one file
	Entries int   // files, folders and links, and paths that links lead to
	Depth   int   // folders and the name in one path
	Name    int   // bytes of one path, and of a link's target
	// Ratio is how many bytes one compressed byte may become, beyond the first
	// 16 MiB of the tar.
	Ratio int64
}

// DefaultLimits are far above any package that people write by hand.
func DefaultLimits() Limits {
	return Limits{
		Compressed: 256 << 20, Size: 1 << 30, File: 256 << 20,
		Entries: 50_000, Depth: 32, Name: 512, Ratio: 200,
	}
}

const (
	// ratioFree is how much of a tar may come of next to nothing.
	ratioFree = 16 << 20
	// maxManifest bounds package.yaml, in bytes.
	maxManifest = 256 << 10
	// maxElement is what Linux lets one name of a path be, in bytes.
	maxElement = 255
	// maxWindow is the most memory that a zstd file may ask for. The levels of zstd
	// without --ultra and --long need 8 MiB.
	maxWindow = 32 << 20
	// maxHops is how many links one link may lead over.
	maxHops = 40
)
