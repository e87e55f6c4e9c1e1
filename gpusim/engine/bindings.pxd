# C types for bindings.py in the compiled core.
cdef long long BINDINGS, DRAM_BINDS, L2_BINDS, FIRST_PARTS

@cython.final
cdef class Bindings:
    cdef Launches launches
    cdef Mixes mixes
    cdef Domains domains
    cdef double booked_at
    cdef long long[::1] bound_by, largest_is
    cdef double[::1] bound_time, whole, largest

    @cython.locals(i=cython.longlong)
    cdef void forget(self) noexcept
    @cython.locals(part=cython.longlong, known=cython.longlong, binds=cython.longlong, held=cython.longlong)
    cdef look(self, long long slot, long long number, long long domain, time_parts)
    @cython.locals(passed=cython.double, slot=cython.longlong)
    cdef void book(self, double now) noexcept
    @cython.locals(most=cython.double, i=cython.longlong)
    cdef most(self, long long slot)
