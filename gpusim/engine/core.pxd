# C types for core.py: the build reads them, plain Python never does.
# numbers that core.py sets once (those that other modules read stay Python's, with a copy for C)
cdef long long RESOURCES, USES, ISSUE_USE, DRAM_USE, L2_USE, FIRST_MIXES, SKIPPED_WAVES, OWN
cdef long long BINDINGS, DRAM_BINDS, L2_BINDS
cdef double FINISHED, SLACK, ROUNDING, _NEVER

cdef long long below_prime(long long x) noexcept
@cython.locals(x=cython.longlong)
cdef double jitter_factor(long long seed, long long block, double jitter)

@cython.final
cdef class SMArray:
    cdef long long sms, bins, width, slots, domain_count, gpc_count, nodes, order_length, open_count
    cdef long long stable, residents, rates_used, parts, active_count, next_clock
    cdef bint reopen, stale_rates, noting
    cdef public double now, origin
    cdef double booked_at, load_step, bin_width, bins_per_us, tensor_cycle
    cdef object resolve, most_beside, slowdowns_of
    cdef list mixes, saved, done, noted, last_noted
    cdef dict mix_ids
    cdef long long[::1] limit, carveout, wanted_carveout, least_carveout, sm_order, domain, count, used, mix, rated
    cdef long long[::1] gpc, gpc_order, gpc_begin, room, dirty, owner, need, first_valid, active, first_sm
    cdef long long[::1] waiting, resident, unfinished, seed, tenant, evicted, cluster, together, pieces, next_piece, all_pieces
    cdef long long[::1] cap, here, ran, pieces_ran, dispatch_order, order_queue, open, after_add, after_drop, most_of
    cdef long long[::1] on_tensor_cores, tensor_blocks, tensor_seen, held_back, first_part, last_part, part_slot, part_rates
    cdef long long[::1] bound_by, largest_is, jumped
    cdef double[::1] recorded_at, work, charged, rate, jitter, ramps, recorded, virtual, slowdown, progress
    cdef double[::1] first_due, issue_demand, dram_demand, l2_demand, own, first_start
    cdef double[::1] dispatched_at, throughput, carried, start_here, end_here, dram_load, l2_load, dram_seen, l2_seen
    cdef double[::1] capacity, mix_dram, mix_l2, part_progress, rates, history
    cdef double[::1] bound_time, whole_time, largest_time

    @cython.locals(i=cython.longlong, sm=cython.longlong, j=cython.longlong)
    cpdef forget_mixes(self)
    @cython.locals(number=cython.longlong)
    cpdef long long intern(self, mix)
    cdef work_out(self, long long number)
    cdef long long neighbour(self, long long mix, long long slot, long long change)
    @cython.locals(due=cython.double, clock=cython.longlong, root=cython.longlong,
                   passed=cython.double)
    cpdef long long advance(self, double until)
    @cython.locals(i=cython.longlong, d=cython.longlong, clock=cython.longlong, left=cython.double, due=cython.double,
                   first=cython.double, sm=cython.longlong)
    cpdef double next_due(self) noexcept
    cpdef restart_clock(self, double origin)
    cpdef bint in_one_bin(self, double start, double end) noexcept
    @cython.locals(sm=cython.longlong, u=cython.longlong, b=cython.longlong)
    cpdef add_uses(self, double at, double[::1] uses)
    @cython.locals(i=cython.longlong)
    cpdef dispatch(self)
    @cython.locals(base=cython.longlong, j=cython.longlong)
    cpdef evict(self, long long slot, long long sm, long long blocks, double extra_work, bint restart=*)
    @cython.locals(blocks=cython.longlong, r=cython.longlong, sm=cython.longlong, i=cython.longlong, k=cython.longlong)
    cpdef submit(self, long long slot, model)
    @cython.locals(sm=cython.longlong, gpc=cython.longlong, usable=cython.longlong, i=cython.longlong)
    cpdef set_caps(self, long long slot, list caps)
    @cython.locals(i=cython.longlong)
    cpdef set_dispatch_order(self, list slots, list queues)
    @cython.locals(sm=cython.longlong)
    cpdef residents_by_sm(self, long long slot)
    @cython.locals(sm=cython.longlong, fullest=cython.longlong, most=cython.longlong)
    cpdef long long fullest_sm(self, long long slot) noexcept
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
    @cython.locals(i=cython.longlong, slot=cython.longlong, sm=cython.longlong, known=cython.longlong)
    cpdef look(self, time_parts)
    @cython.locals(p=cython.longlong)
    cdef long long time_in(self, long long slot, long long sm) noexcept
    @cython.locals(binds=cython.longlong)
    cdef long long binding_at(self, long long slot, long long known, long long domain) noexcept
    @cython.locals(passed=cython.double, slot=cython.longlong)
    cpdef void book(self) noexcept
    @cython.locals(most=cython.double, i=cython.longlong)
    cpdef most_bound_by(self, long long slot)
    @cython.locals(slot=cython.longlong, passed=cython.double)
    cdef double work_left(self, long long sm, long long j) noexcept
    @cython.locals(clocks=cython.longlong, base=cython.longlong, p=cython.longlong, k=cython.longlong,
                   passed=cython.double, j=cython.longlong)
    cdef void charge(self, long long sm) noexcept
    @cython.locals(start=cython.double, end=cython.double, clocks=cython.longlong, issue=cython.double,
                   dram=cython.double, l2=cython.double, p=cython.longlong, k=cython.longlong, i=cython.longlong,
                   done=cython.double, length=cython.double, b=cython.longlong, edge=cython.double,
                   part=cython.double, row=cython.longlong, u=cython.longlong)
    cdef void record(self, long long sm) noexcept
    @cython.locals(sm=cython.longlong)
    cdef void record_all(self) noexcept
    @cython.locals(b=cython.longlong, crosses=cython.bint, i=cython.longlong, d=cython.longlong, clock=cython.longlong)
    cdef void pass_time(self, double to) noexcept
    @cython.locals(b=cython.longlong, i=cython.longlong, row=cython.longlong)
    cdef void fold(self) noexcept
    @cython.locals(was=cython.longlong, mix=cython.longlong, d=cython.longlong, p=cython.longlong, k=cython.longlong,
                   clocks=cython.longlong, base=cython.longlong, due=cython.double, i=cython.longlong,
                   j=cython.longlong, left=cython.double)
    cdef project(self, long long sm)
    cdef note_mix(self, long long sm)
    @cython.locals(root=cython.longlong, node=cython.longlong, other=cython.double, on_other=cython.longlong)
    cdef void note_due(self, long long clock, long long sm, double due) noexcept
    @cython.locals(most=cython.longlong)
    cdef long long find_most(self, long long slot, long long mix) except *
    @cython.locals(i=cython.longlong, u=cython.longlong, r=cython.longlong, shared=cython.longlong, j=cython.longlong,
                   most=cython.longlong)
    cdef bint fits(self, long long slot, long long sm) except -1
    @cython.locals(piece=cython.longlong, idle=cython.longlong)
    cdef double take_piece(self, long long slot, long long sm) noexcept
    @cython.locals(room=cython.longlong, r=cython.longlong, need=cython.longlong, fit=cython.longlong,
                   limit=cython.longlong)
    cdef long long room_for(self, long long slot, long long sm) noexcept
    @cython.locals(k=cython.longlong, j=cython.longlong, ramp=cython.double)
    cdef double share_ramp(self, long long slot, long long sm) noexcept
    @cython.locals(work=cython.double, j=cython.longlong, r=cython.longlong, mix=cython.longlong, i=cython.longlong)
    cdef start(self, long long slot, long long sm)
    @cython.locals(slot=cython.longlong, last=cython.longlong, i=cython.longlong, r=cython.longlong,
                   mix=cython.longlong)
    cdef drop(self, long long sm, long long j)
    @cython.locals(before=cython.longlong, base=cython.longlong, j=cython.longlong, slot=cython.longlong,
                   i=cython.longlong, clocks=cython.longlong)
    cdef complete(self, long long sm)
    @cython.locals(i=cython.longlong, slot=cython.longlong)
    cdef refill(self, long long sm)
    @cython.locals(kept=cython.longlong, i=cython.longlong)
    cdef void retire(self, long long slot) noexcept
    @cython.locals(i=cython.longlong, h=cython.longlong, first=cython.bint)
    cdef void open_heads(self) noexcept
    @cython.locals(top=cython.longlong, sm=cython.longlong, i=cython.longlong)
    cdef place_everywhere(self, long long slot)
    @cython.locals(found=cython.longlong, gpc=cython.longlong, left=cython.longlong, sm=cython.longlong,
                   i=cython.longlong)
    cdef place_clusters(self, long long slot)
    @cython.locals(left=cython.longlong, end=cython.longlong, i=cython.longlong)
    cdef bint fits_cluster(self, long long slot, long long gpc) except -1
    cdef start_anew(self, long long slot, long long sm)
    @cython.locals(sm=cython.longlong, d=cython.longlong)
    cdef settle(self)
    @cython.locals(served=cython.double)
    cdef void watch(self, long long domain) noexcept
    @cython.locals(d=cython.longlong, i=cython.longlong, sm=cython.longlong, mix=cython.longlong, p=cython.longlong)
    cdef void add_up(self) noexcept
    @cython.locals(dram=cython.double, l2=cython.double, cycle=cython.double, clocks=cython.longlong,
                   i=cython.longlong, slot=cython.longlong, own_cycle=cython.double, factor=cython.double,
                   served=cython.double)
    cdef update_slowdowns(self, long long domain)
    @cython.locals(dram=cython.double, l2=cython.double, i=cython.longlong, slot=cython.longlong,
                   progress=cython.double)
    cdef double served(self, long long domain) noexcept
    @cython.locals(i=cython.longlong, slot=cython.longlong, clock=cython.longlong, sm=cython.longlong,
                   p=cython.longlong, spare=cython.longlong, least_waves=cython.longlong, jumps=cython.longlong,
                   length=cython.double, left=cython.double, run=cython.double)
    cdef skip(self, double until)
    @cython.locals(share=cython.double, given=cython.longlong, total=cython.longlong, sm=cython.longlong,
                   p=cython.longlong, clock=cython.longlong)
    cdef void skip_blocks(self, long long slot, long long blocks, double end) noexcept
