# C types for history.py in the compiled core.
cdef long long USES, ISSUE_USE, DRAM_USE, L2_USE

@cython.final
cdef class History:
    cdef long long sms, bins
    cdef double width, per_us
    cdef long long[::1] held
    cdef double[::1] flat

    @cython.locals(i=cython.longlong)
    cdef void clear(self) noexcept
    cdef void reach(self, double end) noexcept
    @cython.locals(b=cython.longlong, i=cython.longlong, row=cython.longlong)
    cdef void fold(self) noexcept
    cdef bint in_one_bin(self, double start, double end) noexcept
    @cython.locals(b=cython.longlong)
    cdef bint ends_bin(self, double start, double end) noexcept
    @cython.locals(length=cython.double, b=cython.longlong, edge=cython.double, part=cython.double,
                   row=cython.longlong, u=cython.longlong)
    cdef void book(self, long long sm, double start, double end, double issue, double dram, double l2) noexcept
    @cython.locals(b=cython.longlong, i=cython.longlong)
    cdef void add(self, double at, double[::1] uses) noexcept
    @cython.locals(b=cython.longlong, i=cython.longlong)
    cdef totals(self)
    @cython.locals(total=cython.double, sm=cython.longlong, b=cython.longlong)
    cdef double block_time(self) noexcept
    cdef copy(self)
