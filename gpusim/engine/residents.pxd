# C types for residents.py in the compiled core.
cdef double FINISHED, ROUNDING

@cython.final
cdef class Residents:
    cdef long long sms, width, slots, blocks
    cdef Launches launches
    cdef Mixes mixes
    cdef Domains domains
    cdef FirstEnds ends
    cdef History history
    cdef double now, origin
    cdef bint noting
    cdef list noted, last_noted
    cdef long long[::1] limit, carveout, count, used, mix, rated, owner
    cdef double[::1] recorded_at, emptied_at, work, rate, charged, recorded

    @cython.locals(sm=cython.longlong)
    cdef void restart_clock(self, double origin) noexcept
    @cython.locals(sm=cython.longlong, j=cython.longlong)
    cdef forget_mixes(self)
    @cython.locals(d=cython.longlong, sm=cython.longlong, mix=cython.longlong, p=cython.longlong)
    cdef void add_up(self) noexcept
    @cython.locals(crosses=cython.bint)
    cdef void pass_time(self, double to) noexcept
    @cython.locals(slot=cython.longlong, passed=cython.double)
    cdef double work_left(self, long long sm, long long j) noexcept
    @cython.locals(clocks=cython.longlong, base=cython.longlong, k=cython.longlong, j=cython.longlong)
    cdef void charge(self, long long sm) noexcept
    @cython.locals(start=cython.double, end=cython.double, clocks=cython.longlong, issue=cython.double,
                   dram=cython.double, l2=cython.double, p=cython.longlong, k=cython.longlong, i=cython.longlong,
                   done=cython.double)
    cdef void record(self, long long sm) noexcept
    @cython.locals(sm=cython.longlong)
    cdef void record_all(self) noexcept
    @cython.locals(was=cython.longlong, mix=cython.longlong, d=cython.longlong, p=cython.longlong, k=cython.longlong,
                   clocks=cython.longlong, base=cython.longlong, due=cython.double, i=cython.longlong,
                   j=cython.longlong, left=cython.double)
    cdef project(self, long long sm)
    cdef note_mix(self, long long sm)
    @cython.locals(present=cython.longlong, stays=cython.bint)
    cdef long long carveout_for(self, long long slot, long long sm) noexcept
    @cython.locals(i=cython.longlong, u=cython.longlong, r=cython.longlong, shared=cython.longlong, j=cython.longlong)
    cdef bint fits(self, long long slot, long long sm) except -1
    @cython.locals(room=cython.longlong, r=cython.longlong, need=cython.longlong, fit=cython.longlong,
                   limit=cython.longlong)
    cdef long long room_for(self, long long slot, long long sm)
    @cython.locals(here=cython.longlong, k=cython.longlong, j=cython.longlong, ramp=cython.double)
    cdef double share_ramp(self, long long slot, long long sm) noexcept
    @cython.locals(work=cython.double, j=cython.longlong, r=cython.longlong, i=cython.longlong)
    cdef start(self, long long slot, long long sm)
    @cython.locals(slot=cython.longlong, last=cython.longlong, i=cython.longlong, r=cython.longlong)
    cdef drop(self, long long sm, long long j)
    @cython.locals(clocks=cython.longlong, passed=cython.double)
    cdef long long last_due(self, long long sm, long long j) noexcept
    @cython.locals(j=cython.longlong, slot=cython.longlong, i=cython.longlong)
    cdef end_due(self, long long sm, list done)
    @cython.locals(base=cython.longlong, j=cython.longlong)
    cdef evict(self, long long slot, long long sm, long long blocks, double extra_work, bint restart)
