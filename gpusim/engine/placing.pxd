# C types for placing.py in the compiled core.
@cython.final
cdef class Placing:
    cdef Residents residents
    cdef Launches launches
    cdef long long sms, gpc_count, length, open_count
    cdef bint any_dirty
    cdef long long[::1] sm_order, gpc, gpc_order, gpc_begin, full, room, dirty, line, queue, open

    @cython.locals(i=cython.longlong)
    cdef set_line(self, list slots, list queues)
    @cython.locals(sm=cython.longlong, gpc=cython.longlong, usable=cython.longlong, i=cython.longlong)
    cdef set_caps(self, long long slot, list caps)
    @cython.locals(i=cython.longlong)
    cdef place_all(self)
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
    @cython.locals(sm=cython.longlong, found=cython.bint)
    cdef bint settle(self) except -1
    @cython.locals(i=cython.longlong, slot=cython.longlong)
    cdef refill(self, long long sm)
