# C types for launches.py in the compiled core.
cdef long long OWN, WAIT, MOST_LENGTHS

cdef long long below_prime(long long x) noexcept
@cython.locals(x=cython.longlong)
cdef double jitter_factor(long long seed, long long block, double jitter) noexcept

@cython.final
cdef class Launches:
    cdef long long sms, slots, width, active_count
    cdef bint placed_all
    cdef list saved, described
    cdef long long[::1] active, need, wanted_carveout, least_carveout, most_carveout, cluster, shared, late_last, seed, on_tensor_cores, tenant
    cdef long long[::1] together, cap, waiting, resident, unfinished, next_block, next_tile, all_tiles
    cdef long long[::1] row, length_count, sms_used
    cdef long long[::1] evicted, gated, here, ran, tiles_ran
    cdef double[::1] lengths, start_us, sm_start_us, held_clock, block_power
    cdef double[::1] tile_work, jitter, ramps, issue_demand, dram_demand, l2_demand, own, wait, code_lost, dram_each, l2_each, first_start, dispatched_at, carried
    cdef double[::1] start_here, end_here

    @cython.locals(blocks=cython.longlong, i=cython.longlong)
    cdef submit(self, long long slot, model, double code_lost=*)
    @cython.locals(r=cython.longlong, i=cython.longlong, k=cython.longlong)
    cdef describe(self, long long slot, model)
    @cython.locals(kept=cython.longlong, i=cython.longlong)
    cdef void retire(self, long long slot) noexcept
    @cython.locals(block=cython.longlong)
    cdef double first_work(self, long long slot) noexcept
    @cython.locals(tile=cython.longlong)
    cdef double next_work(self, long long slot) noexcept
    @cython.locals(work=cython.double, at=cython.longlong)
    cdef double work_of(self, long long slot, long long tile) noexcept
    @cython.locals(sm=cython.longlong, fullest=cython.longlong, most=cython.longlong)
    cdef long long fullest_sm(self, long long slot) noexcept
    @cython.locals(i=cython.longlong, count=cython.longlong)
    cdef span_columns(self, long long slot, double origin)
    @cython.locals(sm=cython.longlong, i=cython.longlong, row=cython.longlong)
    cdef void fill_spans(self, long long slot, double origin, int[::1] sms, int[::1] blocks, double[::1] starts,
                         double[::1] ends) noexcept
