# C types for core.py: the build reads them, plain Python never does.
@cython.final
cdef class SMArray:
    cdef long long sms, slots, next_clock, stable
    cdef Launches launches
    cdef Mixes mixes
    cdef Domains domains
    cdef Residents residents
    cdef Placing placing
    cdef Skipping skipping
    cdef Bindings bindings
    cdef History history
    cdef list done

    @cython.locals(d=cython.longlong)
    cpdef submit(self, long long slot, model, double code_lost=*)
    cpdef forget_mixes(self)
    cpdef forget_slot(self, long long slot)
    cpdef set_caps(self, long long slot, list caps)
    cpdef set_dispatch_order(self, list slots, list queues)
    cpdef evict(self, long long slot, long long sm, long long blocks, double extra_work, bint restart=*)
    cpdef restart_clock(self, double origin)
    cpdef bint in_one_bin(self, double start, double end) noexcept
    cpdef add_uses(self, double at, double[::1] uses)
    cpdef dispatch(self)
    @cython.locals(due=cython.double, clock=cython.longlong, passed=cython.double)
    cpdef long long advance(self, double until)
    @cython.locals(i=cython.longlong, d=cython.longlong, clock=cython.longlong, left=cython.double, due=cython.double,
                   first=cython.double)
    cpdef double next_due(self) noexcept
    @cython.locals(before=cython.longlong)
    cdef complete(self, long long sm)
    @cython.locals(d=cython.longlong)
    cdef settle(self)
    cdef skip(self, double until)
    @cython.locals(sm=cython.longlong)
    cpdef residents_by_sm(self, long long slot)
    cpdef long long fullest_sm(self, long long slot) noexcept
    @cython.locals(sm=cython.longlong, j=cython.longlong)
    cpdef work_left_by_sm(self, long long slot)
    @cython.locals(sm=cython.longlong, j=cython.longlong)
    cpdef work_done_by_sm(self, long long slot)
    cpdef mix_of(self, long long sm)
    cpdef load_at(self, long long sm)
    cpdef void delay(self, double us) noexcept
    cpdef double launch_wait(self, long long sm)
    cpdef span_columns(self, long long slot)
    cpdef uses(self)
    cpdef double block_time(self)
    @cython.locals(i=cython.longlong, slot=cython.longlong, sm=cython.longlong, number=cython.longlong)
    cpdef look(self, time_parts)
    cpdef void book(self) noexcept
    cpdef most_bound_by(self, long long slot)
