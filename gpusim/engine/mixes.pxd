# C types for mixes.py in the compiled core.
cdef long long FIRST_MIXES

@cython.final
cdef class Mixes:
    cdef long long slots, parts, rates_used
    cdef object resolve, most_beside
    cdef list mixes
    cdef dict numbers
    cdef long long[::1] first_valid, after_add, after_drop, most_of, first_part, last_part, part_slot, part_rates
    cdef double[::1] dram, l2, part_progress, rates

    @cython.locals(i=cython.longlong)
    cdef clear(self)
    @cython.locals(i=cython.longlong)
    cdef forget_slot(self, long long slot)
    @cython.locals(number=cython.longlong)
    cdef long long number_of(self, mix)
    cdef work_out(self, long long number)
    cdef grow(self, long long held)
    @cython.locals(other=cython.longlong)
    cdef long long with_one_more(self, long long number, long long slot)
    @cython.locals(other=cython.longlong)
    cdef long long with_one_less(self, long long number, long long slot)
    cdef long long neighbour(self, long long number, long long slot, long long change)
    @cython.locals(known=cython.longlong)
    cdef long long most(self, long long slot, long long number)
    @cython.locals(p=cython.longlong)
    cdef long long part_of(self, long long number, long long slot) noexcept
