# C types for core.py: the build reads them, plain Python never does.
cimport cython
from libc cimport math

# numbers that core.py sets once (those that other modules read stay Python's, with a copy for C)
cdef long long RESOURCES, USES, ISSUE_USE, DRAM_USE, L2_USE, FIRST_MIXES, SKIPPED_WAVES
cdef double FINISHED, SLACK, ROUNDING, _NEVER

cdef long long below_prime(long long x) noexcept
@cython.locals(x=cython.longlong)
cdef double jitter_factor(long long seed, long long block, double jitter)

@cython.locals(d=cython.double, t=cython.double, inner=cython.double)
cpdef double slowdown_at(double dram, double l2, double own_dram, double own_l2, double cycle)

@cython.final
cdef class SMArray:
    cdef long long sms, bins, width, slots, domain_count, group, groups, order_length, open_count
    cdef long long stable, residents, rates_used, updates, anew_count
    cdef bint reopen, stale_rates, noting
    cdef public double now, origin
    cdef double load_step, bin_width, bins_per_us, tensor_cycle
    cdef object resolve, most_beside, slowdowns_of
    cdef list mixes, saved, done, noted, last_noted
    cdef dict mix_ids
    cdef long long[::1] limit, carveout, wanted_carveout, least_carveout, sm_order, domain, count, used, mix, room, dirty, owner, need, first_valid
    cdef long long[::1] waiting, resident, unfinished, next_block, seed, rate_at, next_rate, tenant, evicted
    cdef long long[::1] cap, here, ran, dispatch_order, order_queue, open, after_add, after_drop, rates_at, most_of
    cdef long long[::1] on_tensor_cores, tensor_blocks, tensor_seen
    cdef long long[::1] paced, anew, group_first, only_slot, first_rate, rate_slot, slowed_at, update_of
    cdef double[::1] since, recorded, pace, pace_change, noted_slowdown, due, uses_now, group_due, work, rate, jitter, ramp
    cdef double[::1] issue_demand, dram_demand, l2_demand, own_dram, own_l2, first_start, dispatched_at, throughput, carried
    cdef double[::1] start_here, end_here, dram_load, l2_load, dram_seen, l2_seen, slowdown
    cdef double[::1] capacity, dram_served, l2_served
    cdef double[::1] mix_dram, mix_l2, rates, slowed_rates, history

    @cython.locals(i=cython.longlong, sm=cython.longlong, j=cython.longlong)
    cpdef forget_mixes(self)
    @cython.locals(number=cython.longlong, i=cython.longlong)
    cpdef long long intern(self, mix)
    cdef long long neighbour(self, long long mix, long long slot, long long change)
    @cython.locals(g=cython.longlong, i=cython.longlong, due=cython.double)
    cpdef long long advance(self, double until)
    @cython.locals(sm=cython.longlong)
    cpdef restart_clock(self, double origin)
    cpdef bint in_one_bin(self, double start, double end)
    @cython.locals(sm=cython.longlong, u=cython.longlong, b=cython.longlong)
    cpdef add_uses(self, double at, double[::1] uses)
    @cython.locals(i=cython.longlong)
    cpdef dispatch(self)
    @cython.locals(base=cython.longlong, j=cython.longlong)
    cpdef evict(self, long long slot, long long sm, long long blocks, double extra_work, bint restart=*)
    @cython.locals(r=cython.longlong, sm=cython.longlong, i=cython.longlong)
    cpdef submit(self, long long slot, long long blocks, tuple need, long long carveout, double jitter, long long seed,
                 double issue_demand, double dram_demand, double l2_demand, double own_dram=*, double own_l2=*, long long least_carveout=*, double ramp=*,
                 bint on_tensor_cores=*)
    @cython.locals(sm=cython.longlong)
    cpdef set_caps(self, long long slot, list caps)
    @cython.locals(i=cython.longlong)
    cpdef set_dispatch_order(self, list slots, list queues)
    @cython.locals(sm=cython.longlong)
    cpdef residents_by_sm(self, long long slot)
    @cython.locals(sm=cython.longlong, fullest=cython.longlong, most=cython.longlong)
    cpdef long long fullest_sm(self, long long slot)
    cpdef mix_of(self, long long sm)
    cpdef load_at(self, long long sm)
    @cython.locals(sm=cython.longlong, count=cython.longlong)
    cpdef span_columns(self, long long slot)
    @cython.locals(sm=cython.longlong, i=cython.longlong, row=cython.longlong)
    cdef void fill_spans(self, long long slot, int[::1] sms, int[::1] blocks, double[::1] starts,
                         double[::1] ends) noexcept
    @cython.locals(sm=cython.longlong, b=cython.longlong, u=cython.longlong)
    cpdef uses(self)
    @cython.locals(total=cython.double, sm=cython.longlong, b=cython.longlong)
    cpdef double block_time(self)
    @cython.locals(passed=cython.double, base=cython.longlong, n=cython.longlong, j=cython.longlong)
    cdef void charge(self, long long sm, double t) noexcept
    @cython.locals(u=cython.longlong, b=cython.longlong, start=cython.double, edge=cython.double, part=cython.double)
    cdef void record(self, long long sm, double end) noexcept
    @cython.locals(b=cython.longlong, i=cython.longlong, row=cython.longlong)
    cdef void fold(self) noexcept
    @cython.locals(r=cython.longlong)
    cdef project(self, long long sm)
    cdef note_mix(self, long long sm)
    @cython.locals(base=cython.longlong, j=cython.longlong, mix=cython.longlong)
    cdef void find_rates(self, long long sm) noexcept
    @cython.locals(base=cython.longlong, j=cython.longlong, k=cython.longlong,
                   issue=cython.double, dram=cython.double, l2=cython.double,
                   rate=cython.double, only=cython.longlong, u=cython.longlong)
    cdef void set_rates(self, long long sm) noexcept
    @cython.locals(base=cython.longlong, n=cython.longlong, j=cython.longlong, due=cython.double, left=cython.double)
    cdef void set_due(self, long long sm) noexcept
    @cython.locals(i=cython.longlong)
    cdef void slow_down(self, long long mix, long long domain) noexcept
    @cython.locals(first=cython.longlong, last=cython.longlong, sm=cython.longlong, earliest=cython.longlong,
                   due=cython.double)
    cdef void note_due(self, long long group) noexcept
    @cython.locals(group=cython.longlong)
    cdef void note_all_due(self) noexcept
    @cython.locals(most=cython.longlong)
    cdef long long find_most(self, long long slot, long long mix) except *
    @cython.locals(i=cython.longlong, u=cython.longlong, r=cython.longlong, shared=cython.longlong, j=cython.longlong,
                   most=cython.longlong)
    cdef bint fits(self, long long slot, long long sm) except -1
    @cython.locals(room=cython.longlong, r=cython.longlong, need=cython.longlong, fit=cython.longlong,
                   limit=cython.longlong)
    cdef long long room_for(self, long long slot, long long sm) noexcept
    @cython.locals(old=cython.longlong, d=cython.longlong)
    cdef void change_mix(self, long long sm, long long mix) noexcept
    @cython.locals(work=cython.double, j=cython.longlong, r=cython.longlong, mix=cython.longlong, i=cython.longlong)
    cdef start(self, long long slot, long long sm)
    @cython.locals(slot=cython.longlong, last=cython.longlong, i=cython.longlong, r=cython.longlong,
                   mix=cython.longlong)
    cdef drop(self, long long sm, long long j)
    @cython.locals(before=cython.longlong, base=cython.longlong, j=cython.longlong, slot=cython.longlong,
                   i=cython.longlong)
    cdef complete(self, long long sm)
    @cython.locals(i=cython.longlong, h=cython.longlong, first=cython.bint)
    cdef void open_heads(self) noexcept
    @cython.locals(top=cython.longlong, sm=cython.longlong, i=cython.longlong)
    cdef place_everywhere(self, long long slot)
    @cython.locals(sm=cython.longlong, d=cython.longlong)
    cdef settle(self)
    cdef void watch(self, long long domain) noexcept
    @cython.locals(dram=cython.double, l2=cython.double, sm=cython.longlong, slot=cython.longlong,
                   first=cython.longlong, factor=cython.double, excess=cython.double, cycle=cython.double,
                   own_cycle=cython.double, i=cython.longlong)
    cdef update_slowdowns(self, long long domain)
    @cython.locals(sm=cython.longlong, only=cython.longlong, dram=cython.double, l2=cython.double,
                   pace=cython.double, change=cython.double, paced=cython.longlong, i=cython.longlong,
                   u=cython.longlong)
    cdef void slow_all(self, long long domain) noexcept
    @cython.locals(served=cython.double)
    cdef double excess(self, long long domain) noexcept
    @cython.locals(i=cython.longlong, sm=cython.longlong, j=cython.longlong, spare=cython.longlong,
                   length=cython.double, end=cython.double, run=cython.double)
    cdef skip(self, double until)
    @cython.locals(share=cython.double, given=cython.longlong, total=cython.longlong, sm=cython.longlong,
                   j=cython.longlong)
    cdef void skip_blocks(self, long long slot, long long blocks) noexcept
