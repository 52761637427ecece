package domain

import "time"

// Profile is a set of lease timings that belong together: a lease outlasts the
// runner's own fence by the time that stopping may take, so two holders never
// overlap. Default is for production, Fast for demos and tests.
type Profile struct {
	Name        string
	ReportEvery time.Duration // an agent's report interval
	Fence       time.Duration // runner stops itself this long after the last acknowledged report was sent
	Offer       time.Duration // leased → started
	Salvage     time.Duration // after a lost lease: leftover log and announced artifacts
	Upload      time.Duration // after complete; renewed by reports
	MaxOffers   int           // lost offers before the attempt ends
	// StopBudget is how long a type's stop ladder may take.
	StopBudget func(jobType string) time.Duration
}

// Lease is how long a running lease lives without a report.
func (p Profile) Lease(jobType string) time.Duration { return p.Fence + p.StopBudget(jobType) }

// StopDeadlineExtra is added to the stop budget to give the stop's deadline.
const StopDeadlineExtra = 30 * time.Second

// DefaultProfile is the production timing of docs/design.md.
func DefaultProfile() Profile {
	return Profile{
		Name: "default", ReportEvery: 10 * time.Second, Fence: 80 * time.Second,
		Offer: 15 * time.Second, Salvage: 10 * time.Minute, Upload: 10 * time.Minute, MaxOffers: 5,
		StopBudget: func(jobType string) time.Duration {
			switch jobType {
			case "opentofu":
				return 90 * time.Second
			case "ansible": // several hosts in the middle of a task
				return 30 * time.Second
			case "ssh": // TERM, KILL and a look at the host, each over its own connection
				return 20 * time.Second
			}
			return 10 * time.Second
		},
	}
}

// FastProfile is the timing of demos and tests.
func FastProfile() Profile {
	return Profile{
		Name: "fast", ReportEvery: 3 * time.Second, Fence: 14 * time.Second,
		Offer: 5 * time.Second, Salvage: 5 * time.Second, Upload: 20 * time.Second, MaxOffers: 5,
		StopBudget: func(jobType string) time.Duration {
			switch jobType {
			case "ansible":
				return 20 * time.Second
			case "ssh":
				return 15 * time.Second
			}
			return 6 * time.Second
		},
	}
}

// ProfileByName returns "default" or "fast".
func ProfileByName(name string) (Profile, bool) {
	switch name {
	case "default":
		return DefaultProfile(), true
	case "fast":
		return FastProfile(), true
	}
	return Profile{}, false
}

// Clocks are the effective limits of one attempt in whole seconds, fixed when it
// was created and recorded in its first event.
type Clocks struct {
	Profile        string `json:"profile"`
	QueueSeconds   int    `json:"queue_seconds"`
	OfferSeconds   int    `json:"offer_seconds"`
	RunSeconds     int    `json:"run_seconds"`
	IdleSeconds    int    `json:"idle_seconds,omitempty"` // 0: no idle limit
	StopSeconds    int    `json:"stop_seconds"`           // the stop ladder's budget
	LeaseSeconds   int    `json:"lease_seconds"`
	UploadSeconds  int    `json:"upload_seconds"`
	SalvageSeconds int    `json:"salvage_seconds"`
	ReofferSeconds int    `json:"reoffer_seconds"` // wait after a lost offer, times the number lost
	MaxOffers      int    `json:"max_offers"`
}

// ControlLimits are the operator's defaults and maxima for controls, in seconds.
type ControlLimits struct {
	MaxTimeout     int
	DefaultQueue   int
	MaxQueue       int
	MaxIdle        int
	MaxCancelGrace int
}

// DefaultControlLimits is a day of running, an hour of waiting.
func DefaultControlLimits() ControlLimits {
	return ControlLimits{MaxTimeout: 86400, DefaultQueue: 3600, MaxQueue: 86400, MaxIdle: 86400, MaxCancelGrace: 3600}
}

// EffectiveClocks fixes an attempt's limits from its controls.
func EffectiveClocks(s *JobSpec, p Profile, l ControlLimits, reoffer time.Duration) Clocks {
	sec := func(d time.Duration) int { return int(d / time.Second) }
	c := Clocks{
		Profile: p.Name, QueueSeconds: l.DefaultQueue, OfferSeconds: sec(p.Offer), RunSeconds: s.Controls.TimeoutSeconds,
		IdleSeconds: s.Controls.IdleTimeoutSeconds, StopSeconds: sec(p.StopBudget(s.JobType)),
		UploadSeconds: sec(p.Upload), SalvageSeconds: sec(p.Salvage), ReofferSeconds: sec(reoffer), MaxOffers: p.MaxOffers,
	}
	if s.Controls.QueueTimeoutSeconds > 0 {
		c.QueueSeconds = s.Controls.QueueTimeoutSeconds
	}
	if s.Controls.CancelGraceSeconds > 0 {
		c.StopSeconds = s.Controls.CancelGraceSeconds
	}
	// A longer grace lengthens the lease too: the fence must leave room to stop.
	c.LeaseSeconds = sec(p.Fence) + c.StopSeconds
	return c
}
