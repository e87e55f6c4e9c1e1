# C types for first_ends.py in the compiled core.
@cython.final
cdef class FirstEnds:
    cdef long long sms, nodes
    cdef double[::1] due
    cdef long long[::1] sm

    @cython.locals(root=cython.longlong, node=cython.longlong, other=cython.double, on_other=cython.longlong)
    cdef void note(self, long long clock, long long sm, double due) noexcept
    cdef double first(self, long long clock) noexcept
    cdef long long first_sm(self, long long clock) noexcept
