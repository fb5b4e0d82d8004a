# SPDX-License-Identifier: Apache-2.0
# cython: language_level=3
"""The body of a batch, as `protocol/batch.py` writes it."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.mem cimport PyMem_Free, PyMem_Malloc
from libc.stdint cimport int32_t, uint8_t

from aerobee.native.memory cimport Span, put16, put32, put_bytes

cdef extern from "Python.h":
    const char* PyUnicode_AsUTF8AndSize(object text, Py_ssize_t* size) except NULL

cdef enum:
    OVERHEAD = 22


def merged(list messages not None, Py_ssize_t longest_text):
    """Of messages with flag, body and properties_text; None when one of them has too long a text. They are not to change
    meanwhile, which one thread sees to."""
    cdef Py_ssize_t count = len(messages), at, size = 0
    cdef Span* spans = <Span*>PyMem_Malloc(2 * count * sizeof(Span) + 1)
    cdef Span* span = spans
    cdef bytes body, whole
    cdef uint8_t* p
    cdef int32_t flag
    if spans == NULL:
        raise MemoryError
    try:
        for message in messages:
            body = message.body
            span.at, span.size = body, len(body)
            span[1].at = <const uint8_t*>PyUnicode_AsUTF8AndSize(message.properties_text, &span[1].size)
            if span[1].size > longest_text:
                return None
            size += OVERHEAD + span.size + span[1].size
            span += 2
        whole = PyBytes_FromStringAndSize(NULL, size)
        p = <uint8_t*>PyBytes_AS_STRING(whole)
        span = spans
        for message in messages:
            flag = message.flag
            p = put32(put32(put32(p, OVERHEAD + span.size + span[1].size), 0), 0)
            p = put_bytes(put32(put32(p, flag), span.size), span.at, span.size)
            p = put_bytes(put16(p, span[1].size), span[1].at, span[1].size)
            span += 2
        return whole
    finally:
        PyMem_Free(spans)
