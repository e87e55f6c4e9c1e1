# C types for skipping.py in the compiled core.
cdef long long SKIPPED_WAVES

@cython.final
cdef class Skipping:
    cdef Residents residents
    cdef double[::1] throughput
    cdef long long[::1] jumped

    @cython.locals(i=cython.longlong, slot=cython.longlong, clock=cython.longlong, sm=cython.longlong,
                   p=cython.longlong, mix=cython.longlong, resident=cython.longlong, spare=cython.longlong, alike=cython.bint,
                   least_waves=cython.longlong, jumps=cython.longlong, length=cython.double, left=cython.double,
                   run=cython.double)
    cdef skip(self, double until)
    @cython.locals(share=cython.double, given=cython.longlong, total=cython.longlong, sm=cython.longlong,
                   p=cython.longlong, clock=cython.longlong)
    cdef void skip_blocks(self, long long slot, long long blocks, double end) noexcept
