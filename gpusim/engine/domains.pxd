# C types for domains.py in the compiled core.
cdef double SLACK, STAYS_BUSY
cdef long long QUEUE_HALVINGS, UNDER_WAY

@cython.final
cdef class Domains:
    cdef Launches launches
    cdef long long slots, count
    cdef object slowdowns_of
    cdef double tensor_cycle, load_step, power_seen, power_cycle, dram_served, l2_served
    cdef bint stale
    cdef long long[::1] of_sm, held_back, tensor_blocks, tensor_seen
    cdef double[::1] capacity, dram_load, l2_load, dram_seen, l2_seen, virtual, slowdown, progress, beside

    @cython.locals(d=cython.longlong, i=cython.longlong)
    cdef void forget_loads(self) noexcept
    @cython.locals(d=cython.longlong, i=cython.longlong, clock=cython.longlong)
    cdef void pass_time(self, double passed) noexcept
    @cython.locals(i=cython.longlong, slot=cython.longlong, waiting=cython.double, clock=cython.longlong)
    cdef void delay(self, double us) noexcept
    @cython.locals(served=cython.double)
    cdef void watch(self, long long domain) noexcept
    @cython.locals(d=cython.longlong)
    cdef update(self)
    @cython.locals(total=cython.double, held=cython.double, i=cython.longlong, slot=cython.longlong)
    cdef double power(self) noexcept
    cdef double cycle_of(self, long long slot, long long domain) noexcept
    @cython.locals(dram=cython.double, l2=cython.double, tensor_cycle=cython.double, clocks=cython.longlong,
                   i=cython.longlong, slot=cython.longlong, own_cycle=cython.double, factor=cython.double,
                   served=cython.double)
    cdef update_domain(self, long long domain)
    @cython.locals(each=cython.double, clock=cython.longlong, queue=cython.double)
    cdef double start_queue(self, long long domain, long long slot) noexcept
    @cython.locals(i=cython.longlong, longest=cython.double, least=cython.double, low=cython.double,
                   middle=cython.double)
    cdef void look_at_others(self, long long domain) noexcept
    @cython.locals(dram=cython.double, l2=cython.double, most_dram=cython.double, most_l2=cython.double,
                   i=cython.longlong, slot=cython.longlong, clock=cython.longlong, progress=cython.double,
                   own_dram=cython.double, work=cython.double, longer=cython.double, own_cycle=cython.double,
                   dram_load=cython.double, l2_load=cython.double)
    cdef void wait_beside(self, long long domain, double queue) noexcept
    @cython.locals(total=cython.double, i=cython.longlong, slot=cython.longlong, every=cython.double,
                   d=cython.longlong, here=cython.double, load=cython.double, blocks=cython.double)
    cdef double under_way(self, long long domain) noexcept
    @cython.locals(dram=cython.double, i=cython.longlong, clock=cython.longlong, slowed=cython.double)
    cdef double served_beside(self, long long domain) noexcept
    @cython.locals(dram=cython.double, l2=cython.double, i=cython.longlong, slot=cython.longlong, done=cython.double)
    cdef double served(self, long long domain) noexcept
    @cython.locals(dram=cython.double, l2=cython.double)
    cdef double launch_wait(self, long long domain) noexcept
    @cython.locals(total=cython.double, clock=cython.longlong)
    cdef double throughput(self, long long slot) noexcept
