// What a GPU does with calls in other conditions than alone, as `gpusim validate` scores it.
//
// CONDITIONS has one condition a line, its fields separated by spaces; each is answered by lines of CSV:
//   sm_curve    op                            op,sms,ms
//   residency   op block_smem_bytes most      op,blocks_per_sm,reserved_smem_bytes,ms
//   pairs       a na b nb                     a,na,b,nb,mode,sms_a,sms_b,ms_a,ms_b,ms_makespan
//   quota       a smem_a kA b smem_b kB       a,kA,b,kB,ms_release,ms_a,ms_b
//   modules     module selection op … , op …  module,selection,branch,ops,mode,ms_end,ms_makespan
#pragma once
#include "timing.cuh"

inline int measure_outcomes(const std::string&, const std::vector<Call>&, const char*) { return EXIT_FAILED; }
