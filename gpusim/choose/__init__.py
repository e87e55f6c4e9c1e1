"""Which algorithms, streams and SMs: choosing a plan for a trace, with the replay as the judge."""
